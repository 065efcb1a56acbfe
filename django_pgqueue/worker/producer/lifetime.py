"""How long a worker process goes on: until it is told to stop, or has had its day.

works --stop(grace)--> stopping --all through, or the grace over--> ends
works --so many jobs, so much memory--> stopping, without an end to the grace: it is replaced
works --a job that does not end--> stopping, within the grace: it is replaced
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..options import WorkerOptions

__all__ = ["Lifetime"]

MEMORY_LOOK = 1.0  # seconds between two looks at the memory


class Lifetime:
    """The end of one worker process, and what leads to it."""

    def __init__(self, options: WorkerOptions) -> None:
        self.stopping = False
        """Whether nothing more is to be begun."""
        self.replaced = False
        """Whether another process is to follow."""
        self.grace_ends = float("inf")
        """When what still runs is given up, by the monotonic clock."""
        self.claimed = 0
        """Jobs taken and not given back."""
        self.executed = 0
        """Jobs run so far."""
        self._options = options
        self._next_memory_look = 0.0

    def stop(self, grace: float) -> None:
        """Begin nothing more, and end within ``grace`` seconds. Safe in a signal handler."""
        self.stopping = True
        self.grace_ends = min(self.grace_ends, monotonic() + grace)

    def replace(self, grace: float) -> None:
        """The same, with another process to follow."""
        self.replaced = True
        self.stop(grace)

    def grace_left(self) -> float:
        """Seconds until what still runs is given up."""
        return max(0.0, self.grace_ends - monotonic())

    def jobs_left(self) -> int | None:
        """How many jobs may be claimed yet; None: no end to it."""
        most = self._options.max_jobs
        return None if most is None else max(0, most - self.claimed)

    def is_worn_out(self, *, idle: bool) -> bool:
        """Whether the process has run its number of jobs, ``idle`` now that the last has ended; or has grown
        too large.
        """
        if self.jobs_left() == 0:
            return idle
        now = monotonic()
        if self._options.max_rss is None or now < self._next_memory_look or not self.executed:
            return False  # at least one job: a limit below what it takes to start must not stop everything
        self._next_memory_look = now + MEMORY_LOOK
        return _resident_megabytes() > self._options.max_rss


def _resident_megabytes() -> float:
    """Resident memory; where there is no /proc, the most that it has been so far."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        import resource

        unit = 1 if sys.platform == "darwin" else 1024  # getrusage counts bytes there, kilobytes elsewhere
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
