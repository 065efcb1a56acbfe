"""Jobs that are spread over many priorities, or over many queues: each of them is a range of the claim."""

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

PRIORITIES = "100 priorities"
QUEUES = "50 queues"


def spread(contender: Contender, jobs: int, queues: int | None, priorities: int) -> Figures:
    """Drain jobs that are spread evenly."""
    contender.start_again()
    insert(contender.connection, jobs, queues=queues, priorities=priorities)
    return drain(contender, jobs)


def variants(bench: Bench) -> list[Variant]:
    """Return the variants."""
    ours, jobs = bench.contenders[OURS], number_of_jobs(bench)
    return [
        Variant(PLAIN, partial(plain, ours, jobs)),
        Variant(PRIORITIES, partial(spread, ours, jobs, None, 100)),
        Variant(QUEUES, partial(spread, ours, jobs, 50, 1)),
    ]


SCENARIOS = [
    Scenario(
        name="spread",
        title="Jobs spread over many priorities or queues",
        about="No-op jobs, one worker process for all queues. Plain: one queue, one priority.",
        figure=FIGURE,
        variants=variants,
        baseline=PLAIN,
        rounds=2,
        contestants=(OURS,),
        targets=targets(PRIORITIES, QUEUES),
    )
]
