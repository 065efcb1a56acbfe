"""Idle sessions that listen: what they cost a drain, and what they cost one ``enqueue()``."""

from __future__ import annotations

from functools import partial
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.adverse import FIGURE, PLAIN, drain, insert, number_of_jobs, targets
from benchmarks.contestants import OURS
from benchmarks.scenario import Bench, Scenario, Variant
from benchmarks.sleepers import sleepers

if TYPE_CHECKING:
    from benchmarks.contender import Contender
    from benchmarks.scenario import Figures

__all__ = ["SCENARIOS"]

ONE = "1 idle session"
MANY = "64 idle sessions"
CALLS = 500


def with_listeners(contender: Contender, jobs: int, number: int) -> Figures:
    """Enqueue jobs one by one, then drain others."""
    contender.start_again()
    contender.settle()
    with sleepers(contender.url, number):
        times = [ended - began for began, ended in contender.put("noop", CALLS)]
    contender.start_again()
    insert(contender.connection, jobs)
    figures = drain(contender, jobs, sleepers(contender.url, number))
    return {**figures, "enqueue ms": median(times) * 1e3, "slowest enqueue ms": max(times) * 1e3}


def variants(bench: Bench) -> list[Variant]:
    """Return the variants."""
    ours, jobs = bench.contenders[OURS], number_of_jobs(bench)
    return [
        Variant(name, partial(with_listeners, ours, jobs, number))
        for name, number in ((PLAIN, 0), (ONE, 1), (MANY, 64))
    ]


SCENARIOS = [
    Scenario(
        name="listeners",
        title="Idle sessions that listen",
        about=f"No-op jobs, one worker process; before that, {CALLS} single enqueue() by one client. The"
        " sessions listen and hold the lock that idle workers hold, so every enqueue() notifies them.",
        figure=FIGURE,
        variants=variants,
        baseline=PLAIN,
        rounds=2,
        contestants=(OURS,),
        targets=targets(ONE, MANY),
    )
]
