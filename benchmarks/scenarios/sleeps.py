"""Jobs that wait, as most jobs do: whether a worker keeps all its slots in use."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from benchmarks.contestants import OURS
from benchmarks.plain_sleeps import SLEEP_SECONDS
from benchmarks.scenario import Bench, Scenario, Target, Variant

if TYPE_CHECKING:
    from benchmarks.contender import Contender
    from benchmarks.scenario import Figures

__all__ = ["SCENARIOS"]

THREADS, COROUTINES = 20, 200
IDEAL = "of slots / 10 ms"
IN_THREADS, ON_A_LOOP = f"{THREADS} threads", f"{COROUTINES} async"
PLAIN_THREADS, PLAIN_LOOP = f"{IN_THREADS}, no queue", f"{ON_A_LOOP}, no queue"


def jobs(contender: Contender, kind: str, slots: int, seconds: float) -> Figures:
    """Run jobs that sleep for 10 ms in a worker with this many threads, or async jobs at a time."""
    count = int(slots / SLEEP_SECONDS * seconds)
    contender.start_again()
    contender.fill(kind, count)
    contender.settle()
    with contender.working(threads=slots) as workers:
        return figures(contender.drain(count, workers), slots)


def plain(contender: Contender, kind: str, slots: int, seconds: float) -> Figures:
    """Sleep as often as possible in plain threads, or coroutines."""
    contender.marks.reset()
    with contender.program("benchmarks.plain_sleeps", kind, str(slots), str(seconds)) as program:
        rate, _ = program.communicate()
        return figures(float(rate), slots)


def figures(rate: float, slots: int) -> Figures:
    """Return the rate, and its part of what the slots could do if nothing but the sleeps took time."""
    return {IDEAL: rate * SLEEP_SECONDS / slots, "jobs/s": rate}


def variants(bench: Bench) -> list[Variant]:
    """Return the worker and what is possible without a queue, for threads and for async jobs."""
    (ours,) = bench.among(OURS)
    return [
        Variant(IN_THREADS, partial(jobs, ours, "sleep", THREADS, bench.seconds)),
        Variant(PLAIN_THREADS, partial(plain, ours, "threads", THREADS, bench.seconds / 2)),
        Variant(ON_A_LOOP, partial(jobs, ours, "a_sleep", COROUTINES, bench.seconds)),
        Variant(PLAIN_LOOP, partial(plain, ours, "loop", COROUTINES, bench.seconds / 2)),
    ]


SCENARIOS = [
    Scenario(
        name="sleeps",
        title="Jobs that sleep for 10 ms, one worker process",
        about=f"If only sleeps took time, {THREADS} slots would run 2,000 jobs/s, and {COROUTINES} 20,000.",
        figure=IDEAL,
        variants=variants,
        baseline=IN_THREADS,
        contestants=(OURS,),
        targets=(
            Target(IDEAL, 0.95, IN_THREADS),
            Target(IDEAL, 0.95, ON_A_LOOP),
            Target(IDEAL, 0.95, IN_THREADS, PLAIN_THREADS),
            Target(IDEAL, 0.95, ON_A_LOOP, PLAIN_LOOP),
        ),
    )
]
