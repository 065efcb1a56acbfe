"""A drain beside a long history: a queue must not become slow because of the jobs that it has run before."""

from __future__ import annotations

from contextlib import nullcontext
from functools import cache, partial
from typing import TYPE_CHECKING

from benchmarks.against_plain import TARGETS, against_plain, jobs_for
from benchmarks.contender import Contender
from benchmarks.contestants import OURS
from benchmarks.scenario import Bench, Scenario, Variant

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.scenario import Figures

__all__ = ["SCENARIOS"]

ROWS = 1_000_000
FULL_ROWS = 3_000_000


def finished(plain: Contender, with_history: Callable[[], Contender], jobs: int) -> Figures:
    """Drain without a history, then with it."""
    return against_plain(plain, with_history(), jobs, nullcontext())


def open_with_history(bench: Bench, name: str) -> Contender:
    """Return this contestant again, with one more database, in which the history stays for all rounds."""
    contender = Contender(name, bench.server, "finished")
    bench.opened.callback(contender.close)
    contender.finish(FULL_ROWS if bench.full else ROWS)
    contender.settle()
    return contender


def variants(bench: Bench) -> list[Variant]:
    """Return one variant for each contestant that keeps finished jobs."""
    return [
        Variant(
            name,
            # The history is made in the first round.
            partial(finished, plain, cache(partial(open_with_history, bench, name)), jobs_for(plain, bench)),
        )
        for name, plain in bench.contenders.items()
        if "finished" in plain.contestant.scenarios and plain.contestant.finished
    ]


SCENARIOS = [
    Scenario(
        name="finished",
        title=f"No-op jobs beside {ROWS:,} finished jobs, one worker process",
        about=f"Compared with the same queue without finished jobs in the same round. --full: {FULL_ROWS:,}.",
        figure="jobs/s",
        variants=variants,
        baseline=OURS,
        rounds=2,
        with_peers=True,
        targets=TARGETS,
    )
]
