"""What hooks cost: one that does nothing, and one that adds metadata (``benchmarks.hook_calls``)."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.contestants import OURS
from benchmarks.scenario import Bench, Scenario, Variant

if TYPE_CHECKING:
    from benchmarks.contender import Contender
    from benchmarks.scenario import Figures

__all__ = ["SCENARIOS"]

FIGURE = "us/call"
#: The name of each variant, and what ``benchmarks.hook_calls`` calls it.
CALLS = {
    "enqueue()": ("enqueue", "none"),
    "enqueue(), a hook": ("enqueue", "same"),
    "enqueue(), metadata": ("enqueue", "change"),
    "enqueue_many()": ("many", "none"),
    "enqueue_many(), a hook": ("many", "same"),
    "enqueue_many(), metadata": ("many", "change"),
    "attempt": ("attempt", "none"),
    "attempt, a hook": ("attempt", "same"),
}


def calls(contender: Contender, seconds: float, what: str, hook: str) -> Figures:
    """Return the median time of a call."""
    contender.start_again()
    command = (sys.executable, "-m", "benchmarks.hook_calls", what, hook, str(seconds))
    with contender.beside(*command) as program:
        return {FIGURE: float(program.answer()[0])}


def variants(bench: Bench) -> list[Variant]:
    """Return the variants."""
    ours, seconds = bench.contenders[OURS], bench.seconds / 4
    return [Variant(name, partial(calls, ours, seconds, *how)) for name, how in CALLS.items()]


SCENARIOS = [
    Scenario(
        name="hooks",
        title="Hooks of BEFORE_ENQUEUE and AROUND_ATTEMPT",
        about="enqueue() commits, enqueue_many() has 500 calls, and an attempt is without the database.",
        figure=FIGURE,
        variants=variants,
        baseline="enqueue()",
        lower_is_better=True,
        contestants=(OURS,),
    )
]
