"""No-op jobs per second: what the queue itself costs.

Our claims commit asynchronously, as they always do. Our finishes are durable.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from benchmarks.contestants import OURS
from benchmarks.scenario import Bench, Scenario, Target, Variant
from benchmarks.server import costs

if TYPE_CHECKING:
    from benchmarks.contender import Contender
    from benchmarks.scenario import Figures

__all__ = ["SCENARIOS", "drain"]


def drain(contender: Contender, processes: int, seconds: float) -> Figures:
    """Fill the queue, start the workers, and measure from the first start to the last finish."""
    jobs = int(contender.contestant.pace * seconds * (1 if processes == 1 else 1.6))
    contender.start_again()
    before = costs(contender.connection)
    contender.fill("noop", jobs)
    contender.settle(checkpoint=False)  # WAL is measured
    with contender.working(processes) as workers:
        rate = contender.drain(jobs, workers)
    spent = costs(contender.connection).since(before)
    return {"jobs/s": rate, "WAL bytes/job": spent.wal / jobs, "commits/job": spent.commits / jobs}


def variants(processes: int, bench: Bench) -> list[Variant]:
    """Return one variant for each contestant."""
    return [
        Variant(name, partial(drain, contender, processes, bench.seconds))
        for name, contender in bench.contenders.items()
        if "drain" in contender.contestant.scenarios
    ]


def scenario(name: str, processes: int, title: str) -> Scenario:
    """Return the scenario for this number of worker processes."""
    return Scenario(
        name=name,
        title=title,
        about="No-op jobs, enqueued before the workers start. WAL and commits include their enqueue.",
        figure="jobs/s",
        variants=partial(variants, processes),
        baseline=OURS,
        contestants=("bare-sql",),
        with_peers=True,
        targets=(
            Target("jobs/s", 2, OURS, "pgqueuer-100"),
            Target("jobs/s", 2, OURS, "pgqueuer-1000"),
            Target("jobs/s", 50, OURS, "procrastinate"),
            Target("jobs/s", 50, OURS, "django-tasks-db"),
            Target("jobs/s", 15, OURS, "celery"),
            Target("jobs/s", 0.6, OURS, "bare-sql"),
        ),
    )


SCENARIOS = [
    scenario("drain", 1, "No-op jobs, one worker process"),
    scenario("drain-2", 2, "No-op jobs, two worker processes"),
]
