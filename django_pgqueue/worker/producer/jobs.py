"""The jobs that a worker process holds, and how long the process runs.

claimed --the task starts--> begun (see ``started_jobs``) --reported--> gone
begun --another worker has it--> lost: not in flight any more, but its task still runs
begun --still runs after its timeout and the grace period--> overdue: only the end of the process ends it
"""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator
from time import monotonic

from ...jobs.claim import Claimed
from ..executor.running_job import RunningJob
from ..options import WorkerOptions
from ..sessions import resident_memory
from ..started_jobs import StartedJobs


class Jobs:
    """The jobs that are claimed but not yet reported. Only the producer uses this, except for ``overdue``."""

    def __init__(self, started_jobs: StartedJobs) -> None:
        self.overdue: dict[int, RunningJob] = {}
        self.lost: dict[int, Claimed] = {}
        self._suspects: set[RunningJob] = set()
        self._started_jobs = started_jobs
        self._jobs: dict[int, tuple[Claimed, float]] = {}  # with the time of the claim

    def __len__(self) -> int:
        return len(self._jobs)

    def __iter__(self) -> Iterator[int]:
        return iter(self._jobs)

    @property
    def places(self) -> int:
        """How many places for jobs are taken."""
        return len(self._jobs) + len(self.lost)

    def rows(self) -> list[Claimed]:
        """Return the rows of all jobs in flight."""
        return [row for row, _ in self._jobs.values()]

    def add(self, rows: list[Claimed], now: float) -> None:
        """Add jobs that were claimed."""
        for row in rows:
            self._jobs[row.id] = row, now

    def remove(self, row: Claimed) -> float | None:
        """Remove a job that was reported, and return when it was claimed. Return None if it is not held under
        this lease: a job that lost its lease may have been claimed again in the meantime.
        """
        if (lost := self.lost.get(row.id)) is not None and lost.lease == row.lease:
            del self.lost[row.id]
        held, since = self._jobs.get(row.id, (None, None))
        if held is None or held.lease != row.lease:
            return None
        del self._jobs[row.id]
        self.overdue.pop(row.id, None)
        self._started_jobs.end(row.id)
        return since

    def lose(self, missing: set[RunningJob]) -> list[RunningJob]:
        """Return the jobs that are lost: the ones that were ``missing`` at the last look, too.

        Race: a job may have written its end by itself, and this process is about to hear of it.
        """
        lost = list(missing & self._suspects)
        self._suspects = missing
        for job in lost:
            self.remove(job.row)
            self.lost[job.row.id] = job.row
        return lost

    def only_overdue(self) -> bool:
        """Return whether all jobs in flight are overdue."""
        return self._jobs.keys() <= self.overdue.keys()


MEMORY_LOOK = 1.0  # seconds between two checks of the memory


class Lifetime:
    """When one worker process ends, and why. ``started_jobs``: where the supervisor reads that it ends.

    works --stop(grace)--> stopping --all jobs finished, or the grace period over--> ends
    works --the limit of jobs or memory reached--> stopping, with an unlimited grace period: it is replaced
    works --a job that does not end, or an order--> stopping: it is replaced, or its supervisor stops
    """

    def __init__(self, options: WorkerOptions, started_jobs: StartedJobs) -> None:
        self.stopping = False  # whether no more jobs are started
        self.replaced = False  # whether another process replaces this one
        self.retired = False  # whether its supervisor is to stop, too
        self.grace_ends = float("inf")  # when jobs that still run are given up, by the monotonic clock
        self.claimed = 0  # jobs that were not given back
        self.executed = 0  # jobs
        self._options = options
        self._started_jobs = started_jobs
        self._next_memory_look = 0.0

    def stop(self, grace: float, *, replaced: bool = False, retired: bool = False) -> None:
        """Start no more jobs, and end within ``grace`` seconds. This is safe in a signal handler."""
        self.replaced |= replaced
        self.retired |= retired
        self.stopping = True
        self.grace_ends = min(self.grace_ends, monotonic() + grace)
        self._started_jobs.drains_until = self.grace_ends

    def grace_left(self) -> float:
        """Return the seconds until jobs that still run are given up."""
        return max(0.0, self.grace_ends - monotonic())

    def jobs_left(self) -> int | None:
        """Return how many more jobs may be claimed; None: there is no limit."""
        most = self._options.max_jobs
        return None if most is None else max(0, most - self.claimed)

    def is_worn_out(self, jobs: Jobs) -> bool:
        """Return whether the process uses too much memory, or has begun its maximum of jobs."""
        if self.jobs_left() == 0:
            return self._started_jobs.count >= len(jobs)
        now = monotonic()
        if self._options.max_memory is None or now < self._next_memory_look or not self.executed:
            return False  # run at least one job, even if starting up already uses more than the limit
        self._next_memory_look = now + MEMORY_LOOK
        unit = 1 if sys.platform == "darwin" else 1024  # getrusage counts bytes on macOS, else kilobytes
        most_so_far = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
        return (resident_memory() or most_so_far) > self._options.max_memory * 2**20
