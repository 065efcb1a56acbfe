"""Jobs per second, with jobs that do nothing, which is what the queue itself costs, and with jobs that wait.

Our claims commit asynchronously, as they always do. Our finishes are durable.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from benchmarks.contestants import FLOORS, OURS, OURS_BEST
from benchmarks.marks import LENGTH
from benchmarks.scenario import Bench, Scenario, Target, Variant
from benchmarks.server import costs

if TYPE_CHECKING:
    from benchmarks.contender import Contender
    from benchmarks.contestants.contract import Kind
    from benchmarks.scenario import Figures

__all__ = ["SCENARIOS", "drain"]

THREADS = (1, 2, 4, 8)
LENGTHS = (0, 1, 10, 100)  # milliseconds


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


def of_length(contender: Contender, length: int, seconds: float) -> Figures:
    """The same with the contestant's own configuration, and jobs that wait for so many milliseconds."""
    kind: Kind = "wait" if length else "noop"
    jobs = contender.contestant.jobs(seconds, length)
    contender.start_again()
    before = costs(contender.connection)
    contender.fill(kind, jobs)
    contender.settle(checkpoint=False)
    with contender.working(kind=kind, environment={LENGTH: str(length)}) as workers:
        rate = contender.drain_by_all(jobs, workers, contender.contestant.slots if length else 1)
    spent = costs(contender.connection).since(before)
    return {"jobs/s": rate, "WAL bytes/job": spent.wal / jobs, "commits/job": spent.commits / jobs}


def variants(length: int, bench: Bench) -> list[Variant]:
    """Return one variant for each contestant."""
    return [
        Variant(name, partial(of_length, contender, length, bench.seconds))
        for name, contender in bench.contenders.items()
        if "drain" in contender.contestant.scenarios and (length == 0 or name not in FLOORS)
    ]


def variants_of_threads(bench: Bench) -> list[Variant]:
    """Return one variant of ours for each number of threads."""
    run = partial(drain, bench.contenders[OURS], 1, bench.seconds)
    return [Variant(f"{threads} threads", partial(run, threads=threads)) for threads in THREADS]


def scenario(length: int) -> Scenario:
    """Return the scenario for jobs of this length."""
    return Scenario(
        name=f"drain-{length}" if length else "drain",
        title=f"Jobs that wait for {length} ms" if length else "No-op jobs",
        about="Enqueued before the workers start. WAL and commits include their enqueue.",
        figure="jobs/s",
        variants=partial(variants, length),
        baseline=OURS,
        contestants=() if length else ("bare-sql",),
        with_peers=True,
        targets=()
        if length
        else (
            Target("jobs/s", 2, OURS_BEST, "pgqueuer-best"),
            Target("jobs/s", 50, OURS_BEST, "procrastinate-best"),
            Target("jobs/s", 50, OURS_BEST, "django-tasks-db-best"),
            Target("jobs/s", 15, OURS_BEST, "celery-best"),
            Target("jobs/s", 0.6, OURS, "bare-sql"),
        ),
    )


SCENARIOS = [
    *(scenario(length) for length in LENGTHS),
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
