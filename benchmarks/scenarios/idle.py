"""A worker without jobs: what it sends to the server, and the CPU and memory that it takes."""

from __future__ import annotations

import time
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.contestants import OURS
from benchmarks.processes import bare_django, cpu_seconds, megabytes, supervisor_and_process
from benchmarks.scenario import Bench, Scenario, Target, Variant
from benchmarks.server import connect, settle
from benchmarks.statements import Statements

if TYPE_CHECKING:
    from benchmarks.contender import Contender, Workers
    from benchmarks.scenario import Figures

__all__ = ["SCENARIOS"]

IDLE = "idle worker"
DRAINS = 3
FALLS_ASLEEP = 2.0  # seconds in which an idle worker looks more often, and reports its statistics


def idle(contender: Contender, seconds: float) -> Figures:
    """Drain once, watch the idle worker, and drain again. All in one worker with default options."""
    jobs = int(contender.contestant.pace * seconds / 2)
    bare = bare_django(contender)
    contender.start_again()
    contender.settle()
    with contender.working(processes=1, threads=4) as workers:
        memory = [drained(contender, workers, jobs)]
        figures = watched(contender, workers, 12 * seconds)
        memory += [drained(contender, workers, jobs * number) for number in range(2, DRAINS + 1)]
        supervisor, _ = supervisor_and_process(workers)
        return {
            **figures,
            "MB over bare Django": memory[0] - bare,
            "MB over bare Django, supervisor": megabytes(supervisor) - bare,
            "MB of bare Django": bare,
            f"memory, drain {DRAINS} / drain 1": memory[-1] / memory[0],
        }


def drained(contender: Contender, workers: Workers, jobs: int) -> float:
    """Drain jobs, and return the megabytes of the process afterwards. ``jobs`` includes earlier drains."""
    contender.fill("noop", jobs - contender.marks.count())
    contender.drain(jobs, workers)
    return megabytes(supervisor_and_process(workers)[1])


def watched(contender: Contender, workers: Workers, seconds: float) -> Figures:
    """Return what the worker does while it has no jobs."""
    # No autovacuum shall count as a statement of the worker, nor this vacuum. A session that is open and idle
    # reports its own transactions only after ten seconds, so this one is closed.
    with connect(contender.url) as connection:
        settle(connection)
    processes = supervisor_and_process(workers)
    with closing(Statements(contender)) as statements:
        time.sleep(FALLS_ASLEEP)
        began, sent, used = time.monotonic(), statements.count(), [cpu_seconds(each) for each in processes]
        time.sleep(seconds)
        workers.check()
        watched_for = time.monotonic() - began
        sent = statements.count() - sent
        supervisor, process = (
            100 * (cpu_seconds(each) - before) / watched_for
            for each, before in zip(processes, used, strict=True)
        )
    return {
        "% of a core": supervisor + process,
        "%, supervisor": supervisor,
        "%, process": process,
        "statements/s": sent / watched_for,
    }


def variants(bench: Bench) -> list[Variant]:
    """Return the only variant."""
    (ours,) = bench.among(OURS)
    return [Variant(IDLE, partial(idle, ours, bench.seconds))]


SCENARIOS = [
    Scenario(
        name="idle",
        title="An idle worker with default options",
        about="Memory is measured after jobs have run. Without pg_stat_statements, transactions are counted.",
        figure="% of a core",
        variants=variants,
        baseline=IDLE,
        rounds=2,
        lower_is_better=True,
        contestants=(OURS,),
        targets=(
            Target("statements/s", 1, IDLE, at_most=True),
            Target("% of a core", 0.5, IDLE, at_most=True),
            Target("MB over bare Django", 25, IDLE, at_most=True),
            Target(f"memory, drain {DRAINS} / drain 1", 1.05, IDLE, at_most=True),
        ),
    )
]
