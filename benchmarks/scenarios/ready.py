"""A backlog of a million jobs that are ready: the first part of its drain."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from benchmarks.adverse import FIGURE, PLAIN, drain, insert, number_of_jobs, plain, targets
from benchmarks.contestants import OURS
from benchmarks.scenario import Bench, Scenario, Variant

if TYPE_CHECKING:
    from benchmarks.contender import Contender
    from benchmarks.scenario import Figures

__all__ = ["SCENARIOS"]

BACKLOG = "backlog"
JOBS = 1_000_000


def backlog(contender: Contender, jobs: int) -> Figures:
    """Drain the first jobs of a backlog."""
    contender.start_again()
    insert(contender.connection, max(jobs, JOBS))
    return drain(contender, jobs)


def variants(bench: Bench) -> list[Variant]:
    """Return the variants."""
    ours, jobs = bench.contenders[OURS], number_of_jobs(bench)
    return [
        Variant(PLAIN, partial(plain, ours, jobs)),
        Variant(BACKLOG, partial(backlog, ours, max(jobs, JOBS) if bench.full else jobs)),
    ]


SCENARIOS = [
    Scenario(
        name="ready",
        title="A backlog of a million ready jobs",
        about="No-op jobs, one worker process. Only as many as the plain drain has; with --full all of them.",
        figure=FIGURE,
        variants=variants,
        baseline=PLAIN,
        rounds=2,
        contestants=(OURS,),
        targets=targets(BACKLOG),
    )
]
