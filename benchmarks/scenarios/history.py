"""A drain beside a history of three sizes: a queue must not become slow because of what it has run before."""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING

from benchmarks.contender import Contender
from benchmarks.contestants import OURS
from benchmarks.scenario import Bench, Scenario, Target, Variant

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.scenario import Figures

__all__ = ["SCENARIOS", "SIZES"]

SIZES = (0, 100_000, 1_000_000)


def beside_history(opened: Callable[[], Contender], size: int, seconds: float) -> Figures:
    """Drain no-op jobs."""
    contender = opened()
    jobs = contender.contestant.jobs(seconds)
    if size:
        contender.marks.reset()
    else:
        contender.start_again()
    contender.fill("noop", jobs)
    contender.settle()
    with contender.working(kind="noop") as workers:
        rate = contender.drain_by_all(jobs, workers)
    contender.rest()
    return {"jobs/s": rate}


def with_history(bench: Bench, name: str, size: int) -> Contender:
    """Return this contestant again, with one more database, in which the history stays for all rounds."""
    contender = Contender(name, bench.server, f"history_{size}")
    bench.opened.callback(contender.close)
    contender.finish(size)
    return contender


def variants(bench: Bench) -> list[Variant]:
    """Return one variant for each size, and each contestant that keeps finished jobs."""
    return [
        Variant(
            f"{name}, {size}",
            # The history is made in the first round.
            partial(beside_history, cache(partial(with_history, bench, name, size)), size, bench.seconds),
        )
        for name, contender in bench.contenders.items()
        if "history" in contender.contestant.scenarios
        and contender.contestant.finished
        # The history is the same whatever the workers do, so the best configuration is enough.
        and f"{name}-best" not in bench.contenders
        for size in SIZES
    ]


SCENARIOS = [
    Scenario(
        name="history",
        title=f"No-op jobs beside a history of {', '.join(f'{size:,}' for size in SIZES)} finished jobs",
        about="Each in its best configuration. What the run itself finishes stays there, too.",
        figure="jobs/s",
        variants=variants,
        baseline=f"{OURS}-best, 0",
        rounds=2,
        with_peers=True,
        targets=tuple(Target("jobs/s", 0.9, f"{OURS}-best, {size}", f"{OURS}-best, 0") for size in SIZES[1:]),
    )
]
