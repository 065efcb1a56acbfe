"""Jobs with large arguments."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from benchmarks.contestants import OURS
from benchmarks.processes import Peak, supervisor_and_process
from benchmarks.scenario import Bench, Scenario, Variant
from benchmarks.server import costs

if TYPE_CHECKING:
    from benchmarks.contender import Contender
    from benchmarks.scenario import Figures

__all__ = ["SCENARIOS"]

NONE = "no arguments"

#: The characters of the argument, and how many jobs are enqueued for each second of the run.
SIZES = {NONE: (0, 15_000), "100 B": (100, 15_000), "10 kB": (10_000, 2_500), "1 MB": (1_000_000, 40)}


def run(contender: Contender, size: int, jobs: int) -> Figures:
    """Drain jobs with an argument of this size."""
    contender.start_again()
    before = costs(contender.connection)
    filled = contender.fill("payload" if size else "noop", jobs, size=size)
    contender.settle(checkpoint=False)  # WAL is measured
    with contender.working() as workers:
        _, process = supervisor_and_process(workers)
        with Peak(process) as peak:
            rate = contender.drain(jobs, workers)
    spent = costs(contender.connection).since(before)
    return {
        "jobs/s": rate,
        "MB/s": rate * size / 1e6,
        "enqueued/s": jobs / filled,
        "WAL bytes/job": spent.wal / jobs,
        "MB of memory at most": peak.megabytes,
    }


def variants(bench: Bench) -> list[Variant]:
    """Return one variant for each size."""
    (ours,) = bench.among(OURS)
    return [
        Variant(name, partial(run, ours, size, max(1, int(pace * bench.seconds))))
        for name, (size, pace) in SIZES.items()
    ]


SCENARIOS = [
    Scenario(
        name="payloads",
        title="No-op jobs with an argument, one worker process",
        about="Random text, which the server cannot compress. WAL includes the enqueue.",
        figure="jobs/s",
        variants=variants,
        baseline=NONE,
        contestants=(OURS,),
    )
]
