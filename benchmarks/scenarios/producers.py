"""Many processes enqueue at the same time, one job after the other, while workers run the jobs."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.contestants import OURS
from benchmarks.scenario import Bench, Scenario, Variant

if TYPE_CHECKING:
    from benchmarks.contender import Contender
    from benchmarks.scenario import Figures

__all__ = ["SCENARIOS"]

COUNTS = (1, 4, 16)


def produce(contender: Contender, producers: int, seconds: float) -> Figures:
    """Count what is enqueued and what has run in this time, from when both have begun."""
    contender.start_again()
    contender.settle()
    command = [*contender.contestant.program(), "produce", str(producers)]
    with contender.working(kind="noop") as workers, contender.beside(*command) as program:
        program.answer()
        workers.wait_for(1)  # each producer has enqueued some, so the workers are awake
        before, began = contender.marks.count(), time.monotonic()
        program.tell("begin")
        time.sleep(seconds)
        ran, took = contender.marks.count() - before, time.monotonic() - began
        program.tell("end")
        rates = []
        for _ in range(producers):
            count, spent = map(float, program.answer())
            rates.append(count / spent)
        workers.check()
    return {"enqueued/s": sum(rates), "run/s": ran / took}


def variants(producers: int, bench: Bench) -> list[Variant]:
    """Return one variant for each contestant."""
    return [
        Variant(name, partial(produce, contender, producers, bench.seconds))
        for name, contender in bench.contenders.items()
        if "producers" in contender.contestant.scenarios
        # Producers are the same in both configurations, and the best one has the faster workers.
        and f"{name}-best" not in bench.contenders
    ]


SCENARIOS = [
    Scenario(
        name=f"producers-{count}",
        title=f"Enqueued one by one, by {count} {'processes' if count > 1 else 'process'}, while workers run",
        about="Each enqueue commits. Each queue in its best configuration.",
        figure="enqueued/s",
        variants=partial(variants, count),
        baseline=f"{OURS}-best",
        with_peers=True,
    )
    for count in COUNTS
]
