"""How many jobs a worker takes: as many as can start soon, never more.

Free slots, and what the slots will be through with within 50 ms at the pace of late. So jobs of microseconds
come in large batches, and a job of seconds is never held by a worker that has no slot for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["BatchSize"]

AHEAD = 0.05  # seconds
MOST = 1_000  # jobs claimed and not finished
BATCH = 500  # jobs in one claim
UNKNOWN = 1.0  # seconds that a job takes, as long as nobody knows better
_WEIGHT = 0.3  # of the newest batch in the average


class BatchSize:
    """The moving average of how long a job takes, and what follows from it."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._learned = False
        self.job_seconds = UNKNOWN
        """What a job takes; before the first one is known, none is taken ahead."""

    def learn(self, seconds: Iterable[float]) -> None:
        """Take the run times of finished jobs into account."""
        known = list(seconds)
        if known:
            average = max(1e-6, sum(known) / len(known))
            # Slower at once, faster by and by: holding too many jobs hurts more than holding too few.
            if average > self.job_seconds or not self._learned:
                self.job_seconds = average
            else:
                self.job_seconds += (average - self.job_seconds) * _WEIGHT
            self._learned = True

    @property
    def target(self) -> int:
        """How many jobs the worker should hold."""
        return min(max(MOST, self._slots), self._slots + int(self._slots * AHEAD / self.job_seconds))

    def wanted(self, held: int, running_low: bool) -> int:
        """How many to claim now; 0 while there is enough."""
        target = self.target
        free = target - held
        if free <= 0 or (free < target // 2 and not running_low):
            return 0
        return min(free, max(BATCH, self._slots))
