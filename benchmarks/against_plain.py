"""A drain under bad conditions, compared with the same contestant's plain drain in the same round."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from .contestants import OURS
from .scenario import Target

if TYPE_CHECKING:
    from .contender import Contender
    from .scenario import Bench, Figures

__all__ = ["TARGETS", "against_plain", "jobs_for"]

OF_PLAIN = "of the plain rate"
LAST_TENTH = "last tenth / first tenth"

#: What the scenarios want to reach that compare in this way.
TARGETS = (Target(OF_PLAIN, 0.9, OURS), Target(LAST_TENTH, 0.9, OURS))


def against_plain(
    plain: Contender, bad: Contender, jobs: int, meanwhile: AbstractContextManager[object]
) -> Figures:
    """Drain ``plain``, then ``bad`` inside ``meanwhile``, which is entered when its jobs are in the queue.

    Both may be the same contestant. If ``bad`` is another one, it keeps the rows that it has.
    """
    plain.start_again()
    rate, tenths = _drain(plain, jobs, nullcontext())
    if bad is plain:
        bad.start_again()
    else:
        bad.marks.reset()
    bad_rate, bad_tenths = _drain(bad, jobs, meanwhile)
    return {
        "jobs/s": bad_rate,
        OF_PLAIN: bad_rate / rate,
        LAST_TENTH: bad_tenths[-1] / bad_tenths[0],
        "plain jobs/s": rate,
        f"plain {LAST_TENTH}": tenths[-1] / tenths[0],
    }


def jobs_for(contender: Contender, bench: Bench) -> int:
    """Return how many jobs each of the two drains has: half as many for the peers, to save time."""
    return int(contender.contestant.pace * bench.seconds * (1 if contender.name == OURS else 0.5))


def _drain(
    contender: Contender, jobs: int, meanwhile: AbstractContextManager[object]
) -> tuple[float, list[float]]:
    contender.fill("noop", jobs)
    contender.settle()
    with meanwhile, contender.working() as workers:
        return contender.drain(jobs, workers), workers.tenths(jobs)
