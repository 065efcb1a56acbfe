"""One ``take()`` of a rate in application code, against a query that does nothing and an update of one row.

Each is a call with Django's connection in autocommit mode (``benchmarks.takers``), and both writes wait for
the disk.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.contestants import OURS
from benchmarks.scenario import Bench, Scenario, Target, Variant

if TYPE_CHECKING:
    from benchmarks.contender import Contender
    from benchmarks.scenario import Figures

__all__ = ["SCENARIOS"]

FIGURE = "us/call"
#: The name of each variant, and what ``benchmarks.takers`` calls it.
CALLS = {
    "SELECT 1": "select",
    "update of one row": "update",
    "take()": "take",
    "take() that is refused": "refused",
    "seconds_until()": "look",
}


def calls(contender: Contender, seconds: float, what: str) -> Figures:
    """Return the median time of a call."""
    contender.start_again()
    with contender.beside(sys.executable, "-m", "benchmarks.takers", what, str(seconds)) as program:
        return {FIGURE: float(program.answer()[0])}


def variants(bench: Bench) -> list[Variant]:
    """Return the variants."""
    ours, seconds = bench.contenders[OURS], bench.seconds / 4
    return [Variant(name, partial(calls, ours, seconds, what)) for name, what in CALLS.items()]


SCENARIOS = [
    Scenario(
        name="takes",
        title="Application code takes a start of a rate",
        about="One client, a connection of Django in autocommit mode.",
        figure=FIGURE,
        variants=variants,
        baseline="SELECT 1",
        rounds=3,
        lower_is_better=True,
        contestants=(OURS,),
        targets=(Target(FIGURE, 1.5, "take()", "update of one row", at_most=True),),
    )
]
