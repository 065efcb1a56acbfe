"""How many jobs a worker claims: only as many as can start soon.

This is one job for each free slot, and as many as the slots will finish within 50 ms at their recent pace. So
jobs that take microseconds are claimed in large batches, and a job that takes seconds is never held by a
worker that has no free slot for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["BatchSize"]

AHEAD = 0.05  # seconds
MOST = 1_000  # jobs claimed and not finished
BATCH = 500  # jobs in one claim
UNKNOWN = 1.0  # assumed seconds of a job until the first one was measured
_WEIGHT = 0.3  # of the newest batch in the average


class BatchSize:
    """The moving average of how long a job takes, and the batch size that follows from it."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._learned = False
        self.job_seconds = UNKNOWN
        """How long a job takes. Until the first one was measured, no jobs are claimed ahead."""

    def learn(self, seconds: Iterable[float]) -> None:
        """Take the run times of finished jobs into account."""
        known = list(seconds)
        if known:
            average = max(1e-6, sum(known) / len(known))
            # The average rises at once and falls gradually: holding too many jobs is worse than too few.
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
        """Return how many jobs to claim now; 0 while enough are held."""
        target = self.target
        free = target - held
        if free <= 0 or (free < target // 2 and not running_low):
            return 0
        return min(free, max(BATCH, self._slots))
