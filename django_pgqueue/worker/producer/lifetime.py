"""How long a worker process runs: until it is told to stop, or until it is due for replacement.

works --stop(grace)--> stopping --all jobs finished, or the grace period over--> ends
works --the limit of jobs or memory reached--> stopping, with an unlimited grace period: it is replaced
works --a job that does not end--> stopping, within the grace period: it is replaced
works --replace or retire--> stopping, within the grace period: it is replaced, or its supervisor stops, too
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from ... import conf
from ...formatting import get_logger

if TYPE_CHECKING:
    from ..executor.running_job import RunningJob
    from ..options import WorkerOptions
    from ..processes.started_jobs import StartedJobs
    from ..waker import Waker
    from .in_flight import InFlight

logger = get_logger(__name__)


MEMORY_LOOK = 1.0  # seconds between two checks of the memory


class Lifetime:
    """When one worker process ends, and why. ``started_jobs``: where the supervisor reads that it ends."""

    def __init__(self, options: WorkerOptions, started_jobs: StartedJobs) -> None:
        self.stopping = False
        """Whether no more jobs are started."""
        self.replaced = False
        """Whether another process replaces this one."""
        self.retired = False
        """Whether its supervisor is to stop, too."""
        self.grace_ends = float("inf")
        """When jobs that still run are given up, by the monotonic clock."""
        self.claimed = 0
        """The number of jobs claimed and not given back."""
        self.executed = 0
        """The number of jobs run so far."""
        self._options = options
        self._started_jobs = started_jobs
        self._next_memory_look = 0.0

    def stop(self, grace: float) -> None:
        """Start no more jobs, and end within ``grace`` seconds. This is safe in a signal handler."""
        self.stopping = True
        self.grace_ends = min(self.grace_ends, monotonic() + grace)
        self._started_jobs.drain(self.grace_ends)

    def replace(self, grace: float) -> None:
        """Stop, and let another process replace this one."""
        self.replaced = True
        self.stop(grace)

    def retire(self, grace: float) -> None:
        """Stop, and let the supervisor stop with all its processes."""
        self.retired = True
        self.stop(grace)

    def grace_left(self) -> float:
        """Return the seconds until jobs that still run are given up."""
        return max(0.0, self.grace_ends - monotonic())

    def jobs_left(self) -> int | None:
        """Return how many more jobs may be claimed; None: there is no limit."""
        most = self._options.max_jobs
        return None if most is None else max(0, most - self.claimed)

    def is_worn_out(self, *, all_begun: bool) -> bool:
        """Return whether the process uses too much memory, or has its maximum of jobs and will not give one
        back, because they have ``all_begun``.
        """
        if self.jobs_left() == 0:
            return all_begun
        now = monotonic()
        if self._options.max_memory is None or now < self._next_memory_look or not self.executed:
            return False  # run at least one job, even if starting up already uses more than the limit
        self._next_memory_look = now + MEMORY_LOOK
        return _resident_megabytes() > self._options.max_memory


def _resident_megabytes() -> float:
    """Return the resident memory; without /proc, its maximum so far."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        import resource

        unit = 1 if sys.platform == "darwin" else 1024  # getrusage counts bytes on macOS, else kilobytes
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


# ----------------------------------------------------------------------------
# What happens when a job does not end after its timeout: only the end of the process ends it.


class Overdue:
    """Lets the other jobs finish and then has the process replaced. Called on any thread."""

    def __init__(self, in_flight: InFlight, lifetime: Lifetime, waker: Waker, grace: float) -> None:
        self._in_flight = in_flight
        self._lifetime = lifetime
        self._waker = waker
        self._grace = grace

    def __call__(self, running: RunningJob) -> None:
        """Give up on a job that still runs after its timeout and the grace period."""
        # Not an error: the job's own line says whether it failed, and why.
        logger.warning(
            "job %s still runs %g s after its timeout: this process finishes its other jobs and is replaced",
            running.row.id,
            conf.current().timeout_grace,
        )
        self._in_flight.overdue[running.row.id] = running
        self._lifetime.replace(self._grace)
        self._waker.interrupt()
