"""One place for a worker process under a supervisor, and the process that is in it now.

    empty     until ``start_at``; ``inf`` means forever
    started   a process runs; ``poll`` says whether and how it has ended
    ended     ``start_at`` says when the next one may start: immediately, or later the more often it failed

It manages processes and does not use the database: the supervisor decides what an end means for the jobs.
"""

from __future__ import annotations

import logging
import os
import random
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from time import monotonic, sleep
from typing import TYPE_CHECKING

from ..processes.memory import write_memory
from ..processes.parent_link import Farewell, last_words
from ..processes.popen import child_environment, has_ended, how_it_ended, is_stopped
from ..processes.started_jobs import StartedJobs

if TYPE_CHECKING:
    from ..options import Assignment

__all__ = ["STILLBIRTHS", "Child", "End"]

logger = logging.getLogger(__name__)

LONGEST_BACKOFF = 30.0  # seconds between two starts of a process that keeps crashing
QUICK = 1.0  # seconds; a process that ends sooner is not replaced at once
STILLBIRTHS = 5  # processes in a row that end before they have registered; after that we give up

_COMMAND = (sys.executable, "-m", "django_pgqueue.worker", "worker")


@dataclass(frozen=True, slots=True)
class End:
    """How a process has ended."""

    pid: int
    code: int
    """The exit code, or minus the signal."""
    farewell: Farewell
    """What it said itself."""
    lived: float
    """Seconds."""

    @property
    def how(self) -> str:
        """For a line of the log: what ended it, and why if it could say so."""
        what = how_it_ended(self.code)
        return f"{what} ({self.farewell.cause})" if self.farewell.cause else what


class Child:
    """One worker process after another. Used by the supervisor's main thread alone."""

    def __init__(self) -> None:
        self.worker = 0
        """The id of the worker that the present process, or else the last one, is."""
        self.start_at = 0.0
        """When the next process may start, by the monotonic clock."""
        self.started_at = 0.0
        """When the present process, or else the last one, was started, by the same clock."""
        self.stillbirths = 0
        """Processes that ended, one after another, before they had registered."""
        self._process: subprocess.Popen[bytes] | None = None
        self._line: socket.socket | None = None
        self._started_jobs: StartedJobs | None = None
        self._quick_ends = 0

    # -- the process

    @property
    def pid(self) -> int | None:
        """Of the process in this place; None while there is none."""
        return None if self._process is None else self._process.pid

    @property
    def over(self) -> bool:
        """Whether there is no process and never will be again."""
        return self._process is None and self.start_at == float("inf")

    @property
    def lives(self) -> bool:
        """Whether its process exists and is not stopped."""
        return self._process is not None and not has_ended(self._process) and not is_stopped(self._process)

    @property
    def awaited(self) -> bool:
        """Whether its process has started and not registered yet."""
        return self._process is not None and not self.registered

    @property
    def registered(self) -> bool:
        """Whether there is a process and it has registered: it claims jobs."""
        return self._process is not None and self._started_jobs is not None and self._started_jobs.registered

    @property
    def begun(self) -> list[int] | None:
        """The jobs that its process, or the last one, had begun; None if nobody can know."""
        return [] if self._started_jobs is None else self._started_jobs.begun()

    @property
    def lost_its_lock(self) -> bool:
        """Whether its process has lost the connection that holds its lock."""
        return self._started_jobs is None or not self._started_jobs.holds_lock

    def overdue(self, since: float) -> list[int]:
        """The jobs for which its process should have been replaced before ``since`` (monotonic time)."""
        if self._process is None or self._started_jobs is None:
            return []
        return self._started_jobs.overdue(since)

    def start(self, assignment: Assignment, databases: str = "") -> None:
        """Start a process; there must be none. Raises ``OSError`` if the system does not let us.

        ``databases``: the connection parameters that its own settings do not have (``database_settings``).
        They hold passwords, which everybody could read on a command line or in an environment.

        On the main thread: on Linux the process dies with the *thread* that started it (``parent_link``).
        """
        assert self._process is None
        self.started_at = monotonic()
        self._started_jobs = None
        with ExitStack() as not_ours:
            self._started_jobs = StartedJobs.create(assignment.options.threads)
            not_ours.callback(self._started_jobs.close_file)
            self._line, its_end = socket.socketpair()
            not_ours.enter_context(its_end)
            given = replace(assignment, started_jobs=self._started_jobs.file)
            try:
                if databases:
                    file = write_memory("pgqueue-databases", databases)
                    not_ours.callback(os.close, file)
                    given = replace(given, databases=file)
                self._process = subprocess.Popen(
                    [*_COMMAND, str(os.getpid()), given.to_json()],
                    stdin=its_end.fileno(),
                    env=child_environment(),
                    pass_fds=[file for file in (given.started_jobs, given.databases) if file is not None],
                    # Out of the terminal's group: Ctrl-C comes once, from the supervisor. In one of its own,
                    # so that what its tasks have started ends with it.
                    process_group=0,
                )
            except OSError:
                self._line.close()
                raise
        self.worker = assignment.worker
        logger.info("process %s started", self._process.pid)

    def send_signal(self, number: signal.Signals) -> None:
        """Send its process a signal, if there is one."""
        # Not by Popen, which would wait for one that has ended: see `_leave`.
        if self._process is not None and not has_ended(self._process):
            os.kill(self._process.pid, number)

    def kill(self) -> None:
        """End its process at once; ``poll`` tells when that is done, and ends what its tasks have started."""
        self.send_signal(signal.SIGKILL)

    def poll(self) -> End | None:
        """How its process has ended, told once; None: it has not."""
        if self._process is None or not has_ended(self._process):
            return None
        return self._leave(self._process)

    def wait(self, seconds: float) -> End | None:
        """As ``poll``, but wait for the end."""
        if self._process is None:
            return None
        end = monotonic() + seconds
        while (ended := self.poll()) is None and monotonic() < end:
            sleep(0.01)
        return ended

    def _leave(self, process: subprocess.Popen[bytes]) -> End:
        assert self._line is not None
        farewell = last_words(self._line)
        # Race: only while the process is still to be waited for does nobody else get its number, which is
        # that of the group. One that has taken its leave may have started something that tidies up after it,
        # as multiprocessing does: that is asked to end, what a crash leaves behind is not.
        _signal_group(process.pid, signal.SIGKILL if farewell.code is None else signal.SIGTERM)
        code = process.wait()
        self._line.close()
        self._process = self._line = None
        return End(process.pid, code, farewell, monotonic() - self.started_at)

    # -- the next process

    def retire(self) -> None:
        """Start no further process here."""
        self.start_at = float("inf")

    def replace(self) -> None:
        """The next process may start at once."""
        self.start_at = monotonic()

    def put_off(self, lived: float) -> None:
        """A process has failed after ``lived`` seconds. The more often that happens, the later the next."""
        registered = self._started_jobs is not None and self._started_jobs.registered
        self.stillbirths = 0 if registered else self.stillbirths + 1
        self._quick_ends = self._quick_ends + 1 if lived < QUICK else 0
        failures = max(self._quick_ends, self.stillbirths)
        pause = 0.1 * 2 ** min(failures, 10) * random.uniform(0.8, 1.2)
        self.start_at = monotonic() + (min(LONGEST_BACKOFF, pause) if failures else 0.0)


def _signal_group(pid: int, number: signal.Signals) -> None:
    # Some systems do not let us signal a group in which there is nobody left but the one that has ended.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)
