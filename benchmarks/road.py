"""Measure the queue from enqueue to finish: ``python -m benchmarks.road``.

This starts a durable PostgreSQL server of its own (``fsync`` and ``synchronous_commit`` are on; DATABASE_URL
names another server) and real worker processes, and prints medians of several runs:

    drain      no-op jobs per second, between the first claim and the last finish, with 1 and 2 processes
    pick-up    from the end of the enqueueing transaction to the start of the job, with one idle worker
    enqueue    microseconds for one job (with its own commit; inside a transaction), jobs per second in bulk
    cost       commits and bytes of WAL per job, from enqueue to finish; resident memory of a worker process

Claims commit asynchronously, as they always do. Finishes are durable.
"""

from __future__ import annotations

import os
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.bench import ROOT, empty, execute, one, rows, run_worker, set_up, wait_for

RUNS = 5
DRAINED = 40_000
PICKED_UP = 200


def main() -> None:
    """Measure everything and print the results."""
    set_up()
    drain()
    pick_up()
    enqueue()


def drain() -> None:
    """Measure jobs per second, and the cost of a job."""
    for processes in (1, 2):
        rates, wal, commits = [], [], []
        for _ in range(RUNS):
            empty()
            before = _costs()
            _fill(DRAINED)
            run_worker("--burst", "--processes", str(processes)).wait()
            after = _costs()
            seconds = one(
                "SELECT extract(epoch FROM max(finished_at) - min(last_attempted_at))::float8"
                " FROM pgqueue_job"
            )
            rates.append(DRAINED / seconds)
            wal.append((after[0] - before[0]) / DRAINED)
            commits.append((after[1] - before[1]) / DRAINED)
        print(
            f"drain, {processes} process(es): {statistics.median(rates):,.0f} jobs/s"
            f" ({min(rates):,.0f} to {max(rates):,.0f}), {statistics.median(commits):.3f} commits"
            f" and {statistics.median(wal):,.0f} bytes of WAL per job (including its enqueue)"
        )


def pick_up() -> None:
    """Measure how soon an idle worker starts a job."""
    from benchmarks.tasks import noop
    from django_pgqueue import enqueue as put

    empty()
    worker = run_worker()
    try:
        wait_for("SELECT count(*) = 1 FROM pgqueue_worker")
        time.sleep(2)  # imports and first plans are not measured
        committed: dict[int, float] = {}
        for _ in range(PICKED_UP):
            time.sleep(random.uniform(0.05, 0.3))
            job = put(noop)
            committed[job.pk] = time.time()
        wait_for("SELECT count(*) = 0 FROM pgqueue_job_live")
        started = rows("SELECT id, extract(epoch FROM last_attempted_at)::float8 FROM pgqueue_job")
        # Both times come from this machine's clock. A job may start before the client knows of its commit.
        waits = sorted(max(0.0, start - committed[job_id]) * 1e3 for job_id, start in started)
        memory = [_resident(pid) for (pid,) in rows("SELECT pid FROM pgqueue_worker")]
    finally:
        worker.terminate()
        worker.wait()
    print(
        f"pick-up, idle worker: p50 {_part(waits, 0.50):.2f} ms, p95 {_part(waits, 0.95):.2f} ms,"
        f" p99 {_part(waits, 0.99):.2f} ms, max {waits[-1]:.2f} ms"
    )
    print(f"memory: {memory[0]:.0f} MB in a worker process, {_bare_django():.0f} MB in bare Django")


def enqueue() -> None:
    """Measure how long enqueueing takes."""
    from django.db import transaction

    from benchmarks.tasks import noop
    from django_pgqueue import enqueue as put
    from django_pgqueue import enqueue_many

    alone, inside, bulk = [], [], []
    for _ in range(RUNS):
        empty()
        alone.append(_microseconds(lambda: [put(noop) for _ in range(500)]) / 500)
        with transaction.atomic():
            inside.append(_microseconds(lambda: [put(noop) for _ in range(500)]) / 500)
        many = _microseconds(lambda: enqueue_many(noop.bind() for _ in range(DRAINED)))
        bulk.append(1e6 * DRAINED / many)
    print(
        f"enqueue: {statistics.median(alone):,.0f} us with its own commit,"
        f" {statistics.median(inside):,.0f} us"
        f" inside a transaction, {statistics.median(bulk):,.0f} jobs/s in bulk"
    )


def _fill(jobs: int) -> None:
    from benchmarks.tasks import noop
    from django_pgqueue import enqueue_many

    enqueue_many(noop.bind() for _ in range(jobs))
    execute("VACUUM ANALYZE pgqueue_job_live")
    execute("CHECKPOINT")


def _costs() -> tuple[int, int]:
    """Return the bytes of WAL and the number of commits so far."""
    execute("SELECT pg_stat_clear_snapshot()")
    (row,) = rows(
        "SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn, xact_commit FROM pg_stat_database"
        " WHERE datname = current_database()"
    )
    return int(row[0]), int(row[1])


def _resident(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def _bare_django() -> float:
    code = (
        "import django; django.setup();"
        "from django.db import connection; connection.cursor().execute('SELECT 1');"
        "from pathlib import Path; import os;"
        "print(int(Path('/proc/self/statm').read_text().split()[1]) * os.sysconf('SC_PAGE_SIZE') / 2**20)"
    )
    return float(
        subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=True).stdout
    )


def _microseconds(work: Any) -> float:
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) * 1e6


def _part(values: list[float], part: float) -> float:
    return values[min(len(values) - 1, int(len(values) * part))]


if __name__ == "__main__":
    main()
