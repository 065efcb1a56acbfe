"""A bulk insert in one open transaction, from before the first job to after the last one.

The insert needs the machine, too. To show what is left for the queue to answer for, the same insert also runs
into a second database: it takes the same share of the machine, but it shares no table with the drain.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.adverse import FIGURE, PLAIN, drain, insert, number_of_jobs, plain, targets
from benchmarks.contestants import OURS, OURS_AGAIN
from benchmarks.scenario import Bench, Scenario, Variant

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.contender import Contender
    from benchmarks.scenario import Figures

__all__ = ["SCENARIOS"]

LOADING = "bulk insert"
ELSEWHERE = "bulk insert into another database"
LONG_SECONDS = 30.0


def with_load(contender: Contender, jobs: int, loaded: Contender) -> Figures:
    """Drain while a program inserts into one of our databases."""
    contender.start_again()
    loaded.start_again()
    insert(contender.connection, jobs)
    rows: list[int] = []
    figures = drain(contender, jobs, load(loaded, rows))
    return {**figures, "jobs inserted": rows[0]}


@contextmanager
def load(loaded: Contender, rows: list[int]) -> Iterator[None]:
    """Insert until the drain is over, then commit. Adds the number of rows to ``rows``."""
    with loaded.beside(sys.executable, "-m", "benchmarks.loader") as program:
        program.answer()  # it has inserted the first chunk
        yield
        program.tell("commit")
        rows.append(int(program.answer()[0]))


def variants(bench: Bench) -> list[Variant]:
    """Return the variants."""
    ours, again = bench.contenders[OURS], bench.contenders[OURS_AGAIN]
    jobs = number_of_jobs(bench, LONG_SECONDS if bench.full else None)
    return [
        Variant(PLAIN, partial(plain, ours, jobs)),
        Variant(LOADING, partial(with_load, ours, jobs, ours)),
        Variant(ELSEWHERE, partial(with_load, ours, jobs, again)),
    ]


SCENARIOS = [
    Scenario(
        name="loading",
        title="A bulk insert in one long transaction",
        about="No-op jobs, one worker process, beside enqueue_many() of other jobs that commits at the end.",
        figure=FIGURE,
        variants=variants,
        baseline=PLAIN,
        rounds=2,
        contestants=(OURS, OURS_AGAIN),
        targets=(*targets(LOADING), *targets(LOADING, against=ELSEWHERE)[:1]),
    )
]
