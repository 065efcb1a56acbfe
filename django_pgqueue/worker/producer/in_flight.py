"""The jobs in flight in a worker process, which are claimed but not yet reported.

taken --the task starts--> begun (see ``started_jobs``) --reported--> gone
begun --still runs after its timeout and the grace period--> overdue: only the end of the process ends it
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from ...lifecycle.claimed import Claimed
    from ..executor.running_job import RunningJob
    from ..processes.started_jobs import StartedJobs

__all__ = ["Held", "InFlight"]


class Held(NamedTuple):
    """A job in flight."""

    row: Claimed
    since: float  # monotonic


class InFlight:
    """The jobs by id. Only the producer uses this, except for ``overdue``."""

    def __init__(self, started_jobs: StartedJobs) -> None:
        self.overdue: dict[int, RunningJob] = {}
        """The jobs that do not end."""
        self._started_jobs = started_jobs
        self._jobs: dict[int, Held] = {}

    def __len__(self) -> int:
        return len(self._jobs)

    def __iter__(self) -> Iterator[int]:
        return iter(self._jobs)

    def take(self, rows: list[Claimed], now: float) -> None:
        """Add jobs that were claimed."""
        for row in rows:
            self._jobs[row.id] = Held(row, now)

    def drop(self, row: Claimed) -> Held | None:
        """Remove a job that was reported, and return it. Return None if it is not held under this lease: a
        job that lost its lease may have been claimed again in the meantime.
        """
        held = self._jobs.get(row.id)
        if held is None or held.row.lease != row.lease:
            return None
        del self._jobs[row.id]
        self.overdue.pop(row.id, None)
        self._started_jobs.end(row.id)
        return held

    def is_through(self) -> bool:
        """Return whether only overdue jobs are left, or none."""
        return len(self._jobs) == len(self.overdue) and self._jobs.keys() == self.overdue.keys()

    def rest(self, reported: Collection[int]) -> list[Claimed]:
        """Return the jobs that are neither ``reported`` nor overdue."""
        return [
            held.row
            for job_id, held in self._jobs.items()
            if job_id not in reported and job_id not in self.overdue
        ]

    def may_have_begun(self, row: Claimed) -> bool:
        """Return whether the task may have started. True if that could not be noted."""
        begun = self._started_jobs.begun()
        return begun is None or row.id in begun
