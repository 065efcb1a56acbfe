"""Measure a worker with many async jobs in flight: ``python -m benchmarks.in_flight [JOBS [SLOTS]]``.

This uses a durable server (the one that DATABASE_URL names, or one of its own) and one worker process with 4
threads and SLOTS (default: 2,000) async slots, and prints:

    connections    the most that the worker has while it runs JOBS (default: 10,000) jobs that use the
                   database in every way, and how many it has at the end; fails if they are too many
    sleepers       the time of 10 SLOTS jobs that wait for a second on the event loop, and of as many plain
                   coroutines, SLOTS at a time
    memory         what a job in flight takes
    behind         how long SLOTS async jobs take behind 100 sync jobs that take a second each
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event, Thread

import psutil

from benchmarks.bench import empty, execute, one, run_worker, set_up, wait_for

THREADS = 4
SECONDS = 1.0
NAP = 20.0
SYNC_JOBS = 100
_COUNT = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
    " AND backend_type = 'client backend' AND pid <> pg_backend_pid()"
)
_LEFT = "SELECT count(*) FROM pgqueue_job_live"


def main(jobs: int, slots: int) -> None:
    """Measure everything and print the results."""
    set_up()
    execute("CREATE TABLE IF NOT EXISTS note (id bigserial PRIMARY KEY, text text)")
    connections(jobs, slots)
    sleepers(slots)
    memory(slots)
    behind(slots)


def connections(jobs: int, slots: int) -> None:
    """Count connections while jobs of all kinds run, and afterwards."""
    from benchmarks.flight_tasks import KINDS
    from django_pgqueue import enqueue_many

    at_rest = 2 + 2 * THREADS  # the supervisor, the producer, job threads, and threads of async jobs
    # The threads of the loop close their connections. The server needs a moment to end these sessions.
    bound = at_rest + 2 * ThreadPoolExecutor()._max_workers
    with command(slots) as process, peak() as most:
        enqueue_many(KINDS[number % len(KINDS)].bind() for number in range(jobs))
        seconds = drained(process)
        left = one(_COUNT) - 1  # that of the thread that counts
    failed = one("SELECT count(*) FROM pgqueue_job WHERE status <> 'done'")
    wait_for(f"SELECT ({_COUNT}) = 0")
    print(
        f"connections: {jobs} jobs in {seconds:.1f} s, {failed} not done; at most {most[0]} connections "
        f"(the bound is {bound}), {left} when idle ({at_rest}), 0 after the end"
    )
    if most[0] > bound or left > at_rest or failed:
        raise SystemExit("The worker has more connections than it should have, or jobs have failed.")


def sleepers(slots: int) -> None:
    """Compare sleeping jobs with plain coroutines."""
    count = 10 * slots
    with command(slots) as process:
        run_naps(process, 100, 0.0)
        execute("TRUNCATE pgqueue_job")
        run_naps(process, count, SECONDS)
        seconds = float(one("SELECT extract(epoch FROM max(finished_at) - min(started_at)) FROM pgqueue_job"))
    began = time.monotonic()
    asyncio.run(plain(count, slots))
    bare = time.monotonic() - began
    print(
        f"sleepers: {count} of {SECONDS:g} s, {slots} at a time: {seconds:.2f} s; plain coroutines "
        f"{bare:.2f} s; ratio {bare / seconds:.2f}"
    )


async def plain(count: int, slots: int) -> None:
    """Wait as often as the jobs do, in as many coroutines, each wait in a task of its own."""

    async def work() -> None:
        for _ in range(count // slots):
            await asyncio.create_task(asyncio.sleep(SECONDS))

    await asyncio.gather(*(work() for _ in range(slots)))


def memory(slots: int) -> None:
    """Compare the memory of the process with all slots in use and with none."""
    from benchmarks.flight_tasks import a_nap
    from django_pgqueue import enqueue_many

    with command(slots) as process:
        run_naps(process, 100, 0.0)
        before = process.memory_info().rss
        enqueue_many(a_nap.bind(NAP) for _ in range(slots))
        wait_for(f"SELECT count(*) = {slots} FROM pgqueue_job_live WHERE status = 'running'")
        time.sleep(1.0)  # the last of them have been claimed, and are started now
        after = process.memory_info().rss
        began = time.monotonic()
    print(
        f"memory: {(after - before) / slots / 1024:.1f} kB for each of {slots} jobs in flight; SIGTERM with "
        f"a grace period of 1 s ended the worker in {time.monotonic() - began:.2f} s"
    )
    back = one("SELECT count(*) FROM pgqueue_job_live WHERE status = 'pending' AND attempts = 0")
    if back != slots:
        raise SystemExit(f"Only {back} jobs were requeued when the worker was stopped.")


def behind(slots: int) -> None:
    """Run async jobs that are behind sync ones."""
    from benchmarks.flight_tasks import a_nap, nap
    from django_pgqueue import enqueue_many

    with command(slots) as process:
        run_naps(process, 100, 0.0)
        enqueue_many([nap.bind(0.0)])
        drained(process)
        began = time.monotonic()
        enqueue_many(
            [*[nap.bind(SECONDS) for _ in range(SYNC_JOBS)], *[a_nap.bind(0.1) for _ in range(slots)]]
        )
        path = "benchmarks.flight_tasks.a_nap"
        wait_for(f"SELECT NOT EXISTS (SELECT FROM pgqueue_job_live WHERE task_path = '{path}')")
        of_async = time.monotonic() - began
        seconds = drained(process, began)
    print(
        f"behind: {slots} async jobs of 0.1 s took {of_async:.2f} s behind {SYNC_JOBS} sync ones, which took "
        f"{seconds:.1f} s ({SYNC_JOBS * SECONDS / THREADS:.1f} s in {THREADS} threads at best)"
    )


def run_naps(process: psutil.Process, count: int, seconds: float) -> float:
    """Run async jobs that wait, and return how long that took."""
    from benchmarks.flight_tasks import a_nap
    from django_pgqueue import enqueue_many

    began = time.monotonic()
    enqueue_many(a_nap.bind(seconds) for _ in range(count))
    return drained(process, began)


def drained(process: psutil.Process, began: float | None = None) -> float:
    """Wait until no job is left, and return the seconds since then."""
    began = time.monotonic() if began is None else began
    while one(_LEFT):
        if not process.is_running():
            raise SystemExit("The worker has ended.")
        time.sleep(0.02)
    return time.monotonic() - began


@contextmanager
def command(slots: int) -> Iterator[psutil.Process]:
    """Run a worker for the duration of a block, and wait until it has ended. Returns its process."""
    empty()
    options = ("--threads", str(THREADS), "--async-slots", str(slots), "--grace", "1")
    supervisor = run_worker(*options, is_silent=True)
    try:
        wait_for("SELECT count(*) = 1 FROM pgqueue_worker")
        yield psutil.Process(one("SELECT pid FROM pgqueue_worker"))
    finally:
        supervisor.terminate()
        supervisor.wait()


@contextmanager
def peak() -> Iterator[list[int]]:
    """Count the connections again and again, and note the highest number."""
    from django.db import connections as django_connections

    most, over = [0], Event()

    def watch() -> None:
        while not over.wait(0.01):
            most[0] = max(most[0], one(_COUNT) - 1)  # the main thread's own
        django_connections.close_all()

    thread = Thread(target=watch)
    thread.start()
    try:
        yield most
    finally:
        over.set()
        thread.join()


if __name__ == "__main__":
    given = [int(argument) for argument in sys.argv[1:]]
    main(*(given + [10_000, 2_000][len(given) :]))
