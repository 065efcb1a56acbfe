"""Jobs that insert one row with the ORM: ``python -m benchmarks.inserts [JOBS]``.

What keeping Django's connections from job to job is worth. One worker process with 4 threads drains the jobs,
on a durable server. The variants take turns, and the medians of several rounds count:

    loops     no queue: 4 threads insert the same rows in a loop, each over one connection
    default   a worker with default settings, where Django's CONN_MAX_AGE is 0
    forever   connections that CONN_MAX_AGE = None keeps, without a look at the time since their last use
    each      a connection for each job: CONN_MAX_AGE = 0 and IDLE_CONNECTION_SECONDS = None
"""

from __future__ import annotations

import statistics
import sys
import threading
import time

from benchmarks.bench import empty, execute, one, run_worker, set_up, wait_for

RUNS = 5
THREADS = 4


def main() -> None:
    """Measure all variants and print their rates."""
    jobs = int(sys.argv[1]) if sys.argv[1:] else 6_000
    set_up()
    execute("CREATE TABLE IF NOT EXISTS note (id bigserial PRIMARY KEY, text text NOT NULL)")
    rates: dict[str, list[float]] = {"loops": [], "default": [], "forever": [], "each": []}
    for _ in range(RUNS):
        rates["loops"].append(loops(jobs))
        rates["default"].append(drain(jobs, CONN_MAX_AGE="0"))
        rates["forever"].append(drain(jobs, CONN_MAX_AGE="None", IDLE_CONNECTION_SECONDS="None"))
        rates["each"].append(drain(jobs // 10, CONN_MAX_AGE="0", IDLE_CONNECTION_SECONDS="None"))
    for name, measured in rates.items():
        ratio = statistics.median(one / floor for one, floor in zip(measured, rates["loops"], strict=True))
        print(
            f"{name:8} {statistics.median(measured):7.0f} jobs/s"
            f" ({min(measured):.0f} to {max(measured):.0f}), {ratio:.2f} of the loops in the same round"
        )


def loops(rows: int) -> float:
    """Rows a second without a queue."""
    settle()
    begun = threading.Barrier(THREADS + 1)
    threads = [threading.Thread(target=insert, args=(begun, rows // THREADS)) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    begun.wait()
    start = time.monotonic()
    for thread in threads:
        thread.join()
    return rows / (time.monotonic() - start)


def insert(begun: threading.Barrier, rows: int) -> None:
    """What one thread inserts."""
    from django.db import connection

    from benchmarks.models import Note

    connection.ensure_connection()
    begun.wait()
    for _ in range(rows):
        Note(text="a note").save()
    connection.close()


def drain(jobs: int, **environment: str) -> float:
    """Jobs a second, from the first claim to the last report."""
    from benchmarks.tasks import insert as insert_note
    from django_pgqueue import enqueue_many

    settle()
    enqueue_many(insert_note.bind() for _ in range(jobs))
    execute("VACUUM ANALYZE pgqueue_job_live")
    worker = run_worker("--burst", "--threads", str(THREADS), environment=environment)
    try:
        wait_for(f"SELECT count(*) = {jobs} FROM note")
        worker.wait(60)
    finally:
        worker.terminate()
        worker.wait()
    rate: float = one(
        "SELECT count(*) / extract(epoch FROM max(finished_at) - min(started_at)) FROM pgqueue_job"
        " WHERE status = 'done'"
    )
    return float(rate)


def settle() -> None:
    """Give each run the same start."""
    empty()
    execute("TRUNCATE note")
    execute("CHECKPOINT")


if __name__ == "__main__":
    main()
