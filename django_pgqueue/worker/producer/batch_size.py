"""How many jobs a worker claims: only as many as can start soon, and as memory allows.

This is one job for each free slot, and as many as the slots will finish within 50 ms at their recent pace. So
jobs that take microseconds are claimed in large batches, and a job that takes seconds is never held by a
worker that has no free slot for it.

If jobs are large, it is fewer: the rows that a process holds should not take more than ``HELD_CHARACTERS``,
judged by the average size of those that it has claimed lately. A claim cannot know the size of rows that it
has not read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ...lifecycle.claimed import Claimed

__all__ = ["BatchSize"]

AHEAD = 0.05  # seconds
MOST = 1_000  # jobs claimed and not finished
BATCH = 500  # jobs in one claim
UNKNOWN = 1.0  # assumed seconds of a job until the first one was measured
HELD_CHARACTERS = 32_000_000  # of JSON in the rows of these jobs
_WEIGHT = 0.3  # of the newest batch in the averages


class BatchSize:
    """The moving averages of how long a job takes and how large it is, and the batch size that follows."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._learned = False
        self.job_seconds = UNKNOWN
        """How long a job takes. Until the first one was measured, no jobs are claimed ahead."""
        self.job_characters = 1.0
        """The size of the JSON in a row."""

    def learn(self, seconds: Iterable[float]) -> None:
        """Take the run times of finished jobs into account."""
        known = list(seconds)
        if known:
            average = max(1e-6, sum(known) / len(known))
            self.job_seconds = _moved(self.job_seconds, average) if self._learned else average
            self._learned = True

    def weigh(self, rows: Sequence[Claimed]) -> None:
        """Take the size of claimed rows into account: everything in them that has no fixed size."""
        sizes = [len(row.args) + len(row.kwargs) + len(row.metadata) + len(row.errors) for row in rows]
        self.job_characters = _moved(self.job_characters, sum(sizes) / len(sizes))

    @property
    def target(self) -> int:
        """How many jobs the worker should hold."""
        in_time = self._slots + int(self._slots * AHEAD / self.job_seconds)
        in_memory = int(HELD_CHARACTERS / self.job_characters)
        return max(self._slots, min(MOST, in_time, in_memory))

    def wanted(self, held: int, running_low: bool) -> int:
        """Return how many jobs to claim now; 0 while more than half of those held ahead are left.

        The jobs in the slots do not count: with many slots, nothing would be left to start during the claim.
        """
        target = self.target
        free = target - held
        if free <= 0 or (free < (target - self._slots) // 2 and not running_low):
            return 0
        return min(free, max(BATCH, self._slots))


def _moved(average: float, newest: float) -> float:
    """Return the next average. It rises at once and falls gradually: holding too many jobs is worse than
    holding too few.
    """
    return newest if newest > average else average + (newest - average) * _WEIGHT
