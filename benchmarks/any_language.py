"""Measure claims and reports by SQL: ``python -m benchmarks.any_language``.

This uses a durable server (the one that DATABASE_URL names, or one of its own). It prints how many jobs that
do nothing are done in a second, on one connection, and how long claims of one job take beside many ranges,
and behind the index entries of deleted jobs that an old snapshot keeps.

    claim 100    a claim of 100 jobs, and a report for each
    claim 1      a claim of one job, and its report
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import psycopg

from benchmarks.bench import empty, execute, set_up

JOBS = 2_000
RUNS = 3
_CLAIM = "SELECT id, lease FROM pgqueue_claim(NULL, %s, %s)"
_FINISH = "CALL pgqueue_finish(%s, %s, 'done', started_ago => 0)"

Connection = psycopg.Connection[Any]


def main() -> None:
    """Measure everything and print the results."""
    set_up()
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
        measure("claim 100", connection, lambda worker: drain(connection, worker, 100))
        measure("claim 1", connection, lambda worker: drain(connection, worker, 1))
        for ranges in (1, 10, 100):
            print(f"a claim of 1 beside {ranges} queues: {claim_ms(connection, ranges):.2f} ms")
        for dead in (0, 10_000, 100_000):
            print(f"a claim of 1 behind {dead:,} deleted jobs: {held_ms(connection, dead):.2f} ms")
        empty()


def fill(jobs: int, queue: str = "'default'") -> None:
    """Enqueue jobs in an empty queue."""
    empty()
    add(jobs, queue)
    execute("ANALYZE pgqueue_job_live")


def add(jobs: int, queue: str = "'default'") -> None:
    """Enqueue jobs."""
    execute(
        "INSERT INTO pgqueue_job (task_path, queue_name, max_attempts, on_lost)"
        f" SELECT 'benchmarks.tasks.noop', {queue}, 1, 'rerun' FROM generate_series(1, {jobs}) AS n"
    )


def register(connection: Connection) -> int:
    """Register a worker."""
    row = connection.execute("SELECT pgqueue_register_worker('benchmark')").fetchone()
    assert row is not None
    return int(row[0])


def measure(name: str, connection: Connection, scene: Callable[[int], None]) -> None:
    """Run a scene several times, and print the rate."""
    rates = []
    for _ in range(RUNS):
        fill(JOBS)
        worker = register(connection)
        began = time.monotonic()
        scene(worker)
        rates.append(JOBS / (time.monotonic() - began))
    spread = f"{min(rates):,.0f} to {max(rates):,.0f}"
    print(f"{name}: {statistics.median(rates):,.0f} jobs/s ({spread})", flush=True)


def drain(connection: Connection, worker: int, at_most: int) -> None:
    """Claim and report, each in its own transaction."""
    while rows := connection.execute(_CLAIM, (at_most, worker)).fetchall():
        for row in rows:
            connection.execute(_FINISH, row)


def claim_ms(connection: Connection, ranges: int) -> float:
    """Return the median time of a claim of one job."""
    fill(100 * ranges, f"'q' || n % {ranges}")
    return timed(connection)


def held_ms(connection: Connection, dead: int) -> float:
    """Return the same behind deleted jobs."""
    fill(0)
    with psycopg.connect(os.environ["DATABASE_URL"]) as holder:
        add(dead)
        holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        holder.execute("SELECT 1")
        execute("DELETE FROM pgqueue_job_live")
        add(100)
        return timed(connection)


def timed(connection: Connection) -> float:
    """Time fifty claims."""
    worker, times = register(connection), []
    for _ in range(50):
        began = time.monotonic()
        connection.execute(_CLAIM, (1, worker))
        times.append(time.monotonic() - began)
    return statistics.median(times) * 1000


if __name__ == "__main__":
    main()
