"""How soon an idle worker starts a job."""

from __future__ import annotations

import statistics
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.contestants import OURS
from benchmarks.scenario import Bench, Scenario, Target, Variant

if TYPE_CHECKING:
    from benchmarks.contender import Contender
    from benchmarks.scenario import Figures

__all__ = ["SCENARIOS"]

FLOOR = "bare-notify"
PAUSE = 0.1
#: A run takes longer than others do, for the sake of its 99th percentile.
LONGER = 2.5
#: Imports and first plans are not measured.
FIRST = 20


def latency(contender: Contender, jobs: int) -> Figures:
    """Put jobs one by one, each when the worker has become idle again."""
    contender.start_again()
    contender.settle()
    with contender.working(kind="stamp") as workers:
        contender.put("stamp", FIRST)
        workers.wait_for(FIRST)
        calls = contender.put("stamp", jobs, PAUSE)
        workers.wait_for(FIRST + jobs)
    starts = contender.marks.stamps(jobs)
    # A job may start before its enqueuer knows of the commit.
    after = [max(0.0, start - ended) * 1e3 for start, (_, ended) in zip(starts, calls, strict=True)]
    whole = [(start - began) * 1e3 for start, (began, _) in zip(starts, calls, strict=True)]
    return {
        **{f"p{percent} ms": _percentile(after, percent) for percent in (50, 95, 99)},
        "max ms": max(after),
        **{f"p{percent} ms with the enqueue": _percentile(whole, percent) for percent in (50, 99)},
    }


def variants(bench: Bench) -> list[Variant]:
    """Return one variant for each contestant."""
    jobs = int(bench.seconds * LONGER * (10 if bench.full else 1) / PAUSE)
    return [
        Variant(name, partial(latency, contender, max(jobs, 2)))
        for name, contender in bench.contenders.items()
        if "latency" in contender.contestant.scenarios
    ]


def _percentile(values: list[float], percent: int) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


SCENARIOS = [
    Scenario(
        name="latency",
        title="From the end of an enqueueing call to the start of the job, one idle worker process",
        about=f"Jobs are put one by one, about every {PAUSE} s. {FLOOR}: a NOTIFY and our claim, no worker.",
        figure="p50 ms",
        variants=variants,
        baseline=OURS,
        rounds=2,
        lower_is_better=True,
        contestants=(FLOOR,),
        with_peers=True,
        targets=(
            Target("p50 ms", 1.5, OURS, FLOOR, at_most=True),
            Target("p99 ms", 3, OURS, FLOOR, at_most=True),
        ),
    )
]
