"""Very many queues or priorities, each with one job that is due tomorrow: such as a queue per customer."""

from __future__ import annotations

import statistics
import time
from functools import partial
from typing import TYPE_CHECKING

from benchmarks import cpu
from benchmarks.adverse import insert
from benchmarks.contestants import OURS
from benchmarks.processes import cpu_seconds, supervisor_and_process
from benchmarks.scenario import Bench, Scenario, Target, Variant

if TYPE_CHECKING:
    import psycopg

    from benchmarks.contender import Contender, Workers
    from benchmarks.scenario import Figures

__all__ = ["SCENARIOS"]

TEN = "10 queues"
QUEUES = "20,000 queues"
PRIORITIES = "100 queues x 200 priorities"
DAY = 86_400.0
PAUSE = 0.1  # seconds between two jobs
FALLS_ASLEEP = 3.0  # seconds
CORE = "% of a core, idle"

# One job in one of the queues, as enqueue() would write it. The queues are those of ``insert``.
_PUT = """
    INSERT INTO pgqueue_job_live (task_path, args, max_attempts, on_lost, queue_name, priority)
    VALUES ('benchmarks.tasks.stamp', to_jsonb(ARRAY[%s::integer]), 5, 'rerun', 'q' || %s::integer, 0)
"""


def quiet(contender: Contender, jobs: int, seconds: float, queues: int, priorities: int) -> Figures:
    """Put jobs one by one into queues that the worker does not know yet. Then watch the idle worker."""
    contender.start_again()
    for priority in range(priorities):
        insert(contender.connection, queues, queues=queues, priority=priority - priorities // 2, due_in=DAY)
    contender.settle()
    with contender.working() as workers:
        put(contender.connection, 0, queues)
        workers.wait_for(1)
        time.sleep(FALLS_ASLEEP)
        ended = [put(contender.connection, number, queues) for number in range(1, jobs)]
        workers.wait_for(jobs)
        starts = contender.marks.stamps(jobs)[1:]
        waits = [max(0.0, start - end) * 1e3 for start, end in zip(starts, ended, strict=True)]
        return {
            "p50 ms": statistics.median(waits),
            "p95 ms": statistics.quantiles(waits, n=20, method="inclusive")[-1],
            **idle(contender.connection, workers, seconds),
        }


def put(connection: psycopg.Connection, number: int, queues: int) -> float:
    """Put one job, and return the time of the monotonic clock."""
    connection.execute(_PUT, [number, number * 7919 % queues])
    ended = time.monotonic()
    time.sleep(PAUSE)
    return ended


def idle(connection: psycopg.Connection, workers: Workers, seconds: float) -> Figures:
    """Return how much of a core the idle worker takes, together with its sessions on the server."""
    time.sleep(FALLS_ASLEEP)
    processes = supervisor_and_process(workers)

    def used() -> float:
        return sum(map(cpu_seconds, processes)) + (cpu.of_sessions(connection) or 0.0)

    began, before = time.monotonic(), used()
    time.sleep(seconds)
    workers.check()
    return {CORE: 100 * (used() - before) / (time.monotonic() - began)}


def variants(bench: Bench) -> list[Variant]:
    """Return the variants."""
    run = partial(quiet, bench.contenders[OURS], int(20 * bench.seconds), 10 * bench.seconds)
    return [
        Variant(TEN, partial(run, 10, 1)),
        Variant(QUEUES, partial(run, 20_000, 1)),
        Variant(PRIORITIES, partial(run, 100, 200)),
    ]


SCENARIOS = [
    Scenario(
        name="quiet-queues",
        title="Very many queues whose jobs are due tomorrow",
        about=f"One idle worker. A job is put into another queue every {PAUSE} s; then nothing happens.",
        figure="p50 ms",
        variants=variants,
        baseline=TEN,
        rounds=2,
        lower_is_better=True,
        contestants=(OURS,),
        targets=tuple(
            Target(figure, bound, variant, TEN, at_most=True)
            for figure, bound in (("p50 ms", 3.0), (CORE, 2.0))
            for variant in (QUEUES, PRIORITIES)
        ),
    )
]
