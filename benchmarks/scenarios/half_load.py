"""A worker at half of what it can do: how soon it starts a job, and whether it keeps up."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from benchmarks.contestants import OURS
from benchmarks.load import Load, percentiles
from benchmarks.scenario import Bench, Scenario, Variant

from .drain import drain

if TYPE_CHECKING:
    from benchmarks.contender import Contender
    from benchmarks.scenario import Figures

__all__ = ["SCENARIOS"]

DRAIN, HALF = "drain", "half load"
WARM_UP = 1_000


class HalfLoad:
    """The drain of each round decides the load of this round, so both see the same machine."""

    def __init__(self, contender: Contender, seconds: float) -> None:
        self._contender = contender
        self._seconds = seconds
        self._rate = float(contender.contestant.pace)

    def drain(self) -> Figures:
        """Measure what the worker can do."""
        figures = drain(self._contender, 1, self._seconds)
        self._rate = figures["jobs/s"]
        return {"jobs/s": self._rate}

    def half(self) -> Figures:
        """Enqueue half as many, and measure how soon jobs start."""
        ours = self._contender
        ours.start_again()
        ours.settle()
        with ours.working() as workers, Load(ours, self._rate / 2, self._seconds) as load:
            ours.fill("noop", WARM_UP)
            workers.wait_for(WARM_UP)  # imports and first plans are not measured
            load.begin()
            fed = load.end()
            ended, ran, backlog = time.monotonic(), ours.marks.count() - WARM_UP, ours.unfinished()
            workers.wait_for(WARM_UP + fed.jobs)
            behind = time.monotonic() - ended
        return {
            "jobs/s": ran / fed.seconds,
            "enqueued/s": fed.jobs / fed.seconds,
            **percentiles([wait for _, wait in load.waits(fed)]),
            "backlog at the end": backlog,
            "s until it is gone": behind,
        }


def variants(bench: Bench) -> list[Variant]:
    """Return the drain, and the load that follows from it."""
    (ours,) = bench.among(OURS)
    measured = HalfLoad(ours, bench.seconds)
    return [Variant(DRAIN, measured.drain), Variant(HALF, measured.half)]


SCENARIOS = [
    Scenario(
        name="half-load",
        title="Two processes enqueue at half of the drain's rate, one worker process",
        about="They enqueue 50 no-op jobs at a time, and single jobs besides. The percentiles are from the"
        " commit of a single job to its start.",
        figure="jobs/s",
        variants=variants,
        baseline=DRAIN,
        contestants=(OURS,),
    )
]
