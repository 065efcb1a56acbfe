"""What the history of finished jobs costs: the drain of a queue that keeps it, and of one that does not."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from benchmarks.contestants import OURS
from benchmarks.scenario import Bench, Scenario, Target, Variant

from .drain import drain

if TYPE_CHECKING:
    from benchmarks.contender import Contender
    from benchmarks.scenario import Figures

__all__ = ["SCENARIOS"]

ON, OFF = "history", "history off"
#: A run has more jobs than others, so that the pages that are logged whole after a checkpoint hardly count.
LONGER = 2.5


def without_history(contender: Contender, seconds: float) -> Figures:
    """Drain the default queue while its rows are deleted as soon as jobs have finished."""
    contender.connection.execute("INSERT INTO pgqueue_queue (name, retention) VALUES ('default', '0')")
    try:
        return drain(contender, 1, seconds)
    finally:
        contender.connection.execute("DELETE FROM pgqueue_queue")


def variants(bench: Bench) -> list[Variant]:
    """Return the drain with history, and without."""
    (ours,) = bench.among(OURS)
    return [
        Variant(ON, partial(drain, ours, 1, LONGER * bench.seconds)),
        Variant(OFF, partial(without_history, ours, LONGER * bench.seconds)),
    ]


SCENARIOS = [
    Scenario(
        name="history-off",
        title="No-op jobs with and without history, one worker process",
        about="Off: the queue's retention is zero. WAL and commits include the enqueue.",
        figure="jobs/s",
        variants=variants,
        baseline=ON,
        contestants=(OURS,),
        targets=(
            Target("WAL bytes/job", 1_300, ON, at_most=True),
            Target("WAL bytes/job", 900, OFF, at_most=True),
            Target("commits/job", 0.1, ON, at_most=True),
            Target("commits/job", 0.1, OFF, at_most=True),
        ),
    )
]
