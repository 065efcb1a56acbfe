"""Jobs that fail once and are retried at once."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from benchmarks.contestants import OURS
from benchmarks.scenario import Bench, Scenario, Variant
from benchmarks.server import costs

from .drain import drain

if TYPE_CHECKING:
    from benchmarks.contender import Contender
    from benchmarks.scenario import Figures

__all__ = ["SCENARIOS"]

DRAIN, RETRIES = "drain", "every job fails once"


def retries(contender: Contender, seconds: float) -> Figures:
    """Drain jobs with two attempts each. Each attempt leaves a mark."""
    jobs = int(contender.contestant.pace * seconds / 4)
    contender.start_again()
    before = costs(contender.connection)
    contender.fill("flaky", jobs)
    contender.settle(checkpoint=False)  # WAL is measured
    with contender.working() as workers:
        attempts = contender.drain(2 * jobs, workers)
    spent = costs(contender.connection).since(before)
    return {
        "jobs/s": attempts / 2,
        "attempts/s": attempts,
        "WAL bytes/job": spent.wal / jobs,
        "commits/job": spent.commits / jobs,
    }


def variants(bench: Bench) -> list[Variant]:
    """Return the plain drain, and the drain of jobs that fail once."""
    (ours,) = bench.among(OURS)
    return [
        Variant(DRAIN, partial(drain, ours, 1, bench.seconds)),
        Variant(RETRIES, partial(retries, ours, bench.seconds)),
    ]


SCENARIOS = [
    Scenario(
        name="retries",
        title="Every job fails once and is retried at once, one worker process",
        about="The errors are stored with the jobs. WAL and commits include the enqueue.",
        figure="jobs/s",
        variants=variants,
        baseline=DRAIN,
        contestants=(OURS,),
    )
]
