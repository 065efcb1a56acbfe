"""Whether the queue is slower when it is larger: a thousand to ten million jobs, ready and in history.

The same number of jobs is drained at each size, while so many more stay ready behind them. The claims that
are timed one by one (``benchmarks.claims``) run before that, without a worker.
"""

from __future__ import annotations

import sys
from functools import partial
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.adverse import FIGURE, drain, insert, number_of_jobs
from benchmarks.contestants import OURS
from benchmarks.scenario import Bench, Scenario, Target, Variant

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.contender import Contender
    from benchmarks.scenario import Figures

__all__ = ["SCENARIOS"]

SIZES = (1_000, 10_000, 100_000, 1_000_000)
LARGEST = 10_000_000  # with --full
CLAIM = "claim ms"
SLOWEST = "slowest claim ms"
CLAIMS, BATCH = 50, 100
WITHIN = 1.2


def measure(contender: Contender, size: int, drained: int) -> Figures:
    """Time the claims, then drain."""
    contender.start_again()
    contender.finish(size)
    insert(contender.connection, CLAIMS * BATCH + drained + size)
    contender.settle()
    command = (sys.executable, "-m", "benchmarks.claims", str(CLAIMS), str(BATCH))
    with contender.beside(*command) as program:
        claims = [float(word) for word in program.answer()]
    contender.connection.execute("DELETE FROM pgqueue_job_live WHERE status = 'running'")
    # The first claim includes the planning.
    return {**drain(contender, drained), CLAIM: median(claims), SLOWEST: max(claims[1:])}


def variants(bench: Bench) -> list[Variant]:
    """Return the variants."""
    ours, drained = bench.contenders[OURS], number_of_jobs(bench)
    return [
        Variant(name_of(size), partial(measure, ours, size, drained))
        for size in (*SIZES, *((LARGEST,) if bench.full else ()))
    ]


def name_of(size: int) -> str:
    """Return the name of a variant."""
    return f"{size:,} rows"


def targets() -> Iterator[Target]:
    """Yield what we want to reach at the largest sizes."""
    smallest = name_of(SIZES[0])
    for size in (SIZES[-1], LARGEST):
        yield Target(FIGURE, 1 / WITHIN, name_of(size), smallest)
        yield Target(CLAIM, WITHIN, name_of(size), smallest, at_most=True)


SCENARIOS = [
    Scenario(
        name="sizes",
        title="Small and large tables",
        about=f"No-op jobs, one worker process: so many jobs in history, and so many ready behind those that"
        f" are drained. A claim takes {BATCH} jobs.",
        figure=FIGURE,
        variants=variants,
        baseline=name_of(SIZES[0]),
        rounds=2,
        only_full=True,
        contestants=(OURS,),
        targets=tuple(targets()),
    )
]
