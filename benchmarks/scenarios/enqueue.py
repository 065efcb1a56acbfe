"""What it costs to enqueue one job, and how fast many jobs are enqueued. No worker runs meanwhile."""

from __future__ import annotations

import statistics
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.contestants import OURS, OURS_BEST
from benchmarks.scenario import Bench, Scenario, Target, Variant

if TYPE_CHECKING:
    from benchmarks.contender import Contender
    from benchmarks.scenario import Figures

__all__ = ["SCENARIOS"]

#: What the first calls of a session compile and plan is not measured.
FIRST = 20
CALLS_PER_SECOND = 100
#: The bulk way of a slow queue is faster than its workers, so it gets more jobs than its pace suggests.
LEAST_PACE = 1_000


def enqueue(contender: Contender, calls: int) -> Figures:
    """Enqueue jobs one by one."""
    contender.start_again()
    contender.settle()
    taken = [(ended - began) * 1e6 for began, ended in contender.put("noop", FIRST + calls)[FIRST:]]
    return {"us": statistics.median(taken), "us on average": statistics.fmean(taken)}


def bulk(contender: Contender, jobs: int) -> Figures:
    """Enqueue many jobs."""
    contender.start_again()
    contender.settle()
    return {"jobs/s": jobs / contender.bulk("noop", jobs)}


def singles(bench: Bench) -> list[Variant]:
    """Return one variant for each contestant."""
    return [
        Variant(name, partial(enqueue, contender, int(bench.seconds * CALLS_PER_SECOND)))
        for name, contender in bench.contenders.items()
        if "enqueue" in contender.contestant.scenarios
    ]


def bulks(bench: Bench) -> list[Variant]:
    """Return one variant for each contestant."""
    return [
        Variant(
            name, partial(bulk, contender, int(bench.seconds * max(contender.contestant.pace, LEAST_PACE)))
        )
        for name, contender in bench.contenders.items()
        if "bulk" in contender.contestant.scenarios and f"{name}-best" not in bench.contenders
    ]


SCENARIOS = [
    Scenario(
        name="enqueue",
        title="One enqueue()",
        about="With its own commit; inside a transaction; over a new connection each time (CONN_MAX_AGE = 0)."
        " create: Model.objects.create() of a row with the columns, constraints and indexes of a job.",
        figure="us",
        variants=singles,
        baseline=OURS,
        lower_is_better=True,
        contestants=(
            "create",
            "in-transaction",
            "create-in-transaction",
            "over-connections",
            "create-over-connections",
        ),
        targets=(
            Target("us", 1.15, OURS, "create", at_most=True),
            Target("us", 1.15, "in-transaction", "create-in-transaction", at_most=True),
        ),
    ),
    Scenario(
        name="bulk",
        title="Many jobs, the fastest way to enqueue that each queue documents",
        about="unnest: a bare INSERT .. SELECT FROM unnest(..) of the same columns, constraints and indexes.",
        figure="jobs/s",
        variants=bulks,
        baseline=OURS_BEST,
        contestants=("unnest",),
        with_peers=True,
        targets=(Target("jobs/s", 0.7, OURS_BEST, "unnest"),),
    ),
]
