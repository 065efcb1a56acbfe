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

THREADS = (1, 2, 4, 8)


def drain(contender: Contender, processes: int, seconds: float, threads: int = 1) -> Figures:
    """Fill the queue, start the workers, and measure from the first start to the last finish."""
    jobs = int(contender.contestant.pace * seconds * (1 if processes == 1 else 1.6))
    contender.start_again()
    before = costs(contender.connection)
    contender.fill("noop", jobs)
    contender.settle(checkpoint=False)  # WAL is measured
    with contender.working(processes, threads) as workers:
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


def variants_of_threads(bench: Bench) -> list[Variant]:
    """Return one variant of ours for each number of threads."""
    run = partial(drain, bench.contenders[OURS], 1, bench.seconds)
    return [Variant(f"{threads} threads", partial(run, threads=threads)) for threads in THREADS]


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
    Scenario(
        name="drain-threads",
        title="No-op jobs, one worker process with 1, 2, 4 and 8 threads",
        about="More threads than the jobs need must cost nothing: the rate is flat.",
        figure="jobs/s",
        variants=variants_of_threads,
        baseline="1 threads",
        targets=tuple(Target("jobs/s", 0.8, f"{threads} threads", "1 threads") for threads in THREADS[1:]),
    ),
]
