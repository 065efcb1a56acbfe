"""One place for a worker process under a supervisor, and the process that is in it now.

    empty     until ``start_at``; ``inf`` means forever
    taken     a process runs, in one of the states STARTING, WORKING, DRAINING and ENDING. Each of them has
              its deadline, except where a job without a timeout may run for as long as it likes
    ended     ``poll`` has returned how. The next process may start at ``start_at``: immediately, or later the
              more often one has failed

The supervisor decides what happens to the jobs of a process that has ended.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
from collections.abc import Callable, Container
from contextlib import suppress
from dataclasses import replace
from threading import Lock
from time import monotonic, sleep
from typing import NamedTuple

from ...formatting import get_logger
from .. import spawn
from ..options import Assignment
from ..started_jobs import SHOW_STACKS, StartedJobs

logger = get_logger(__name__)

LONGEST_BACKOFF = 30.0  # seconds between two starts of a process that keeps crashing
_SHOWN_WITHIN = 0.5  # seconds
QUICK = 1.0  # seconds; a process that ends earlier than this is not replaced immediately
_NEVER = float("inf")
#: Race: a process that has just started may end before its ``pid`` is known, and is no orphan.
_starting = Lock()


class State(NamedTuple):
    """What a process does, and for how long it may do it."""

    warn_after: float = _NEVER  # seconds after which ``warning`` is logged
    warning: str = ""
    # Seconds from the beginning of the state, or from the end of the grace period in which it drains.
    killed_after: float = _NEVER
    why: str = ""


#: It loads the project. What its settings wait for, such as a server of secrets, may never answer.
STARTING = State(
    warn_after=15.0,
    warning="process %(pid)s still loads the settings and apps after %(now)g s; it is killed at %(killed)g s",
    killed_after=spawn.START_WITHIN,
    why="it had not loaded the settings and apps within %g s",
)
#: It waits for its database, which it logs, or runs jobs, which may have a timeout (``StartedJobs.overdue``).
WORKING = State()
#: It claims no more jobs. After ``--max-jobs`` and ``--max-memory``, its grace period never ends.
DRAINING = State(
    warn_after=60.0,
    warning="process %(pid)s claims no more jobs, and has waited %(now)g s for %(jobs)s. No other process "
    "takes its place before. Cancel jobs that should not run so long, and give their tasks a timeout",
    killed_after=spawn.END_WITHIN,
    why="it did not end within %g s after its grace period",
)
#: It has sent its last words. Unless something holds the GIL, it ends itself sooner (``leave_after``).
ENDING = State(
    killed_after=spawn.END_WITHIN,
    why="it was done, but an exit handler or a thread kept it from ending within %g s",
)


class End(NamedTuple):
    """How a process has ended."""

    pid: int
    how: str  # the exit code or the signal in words, for the log, with the cause if the process sent one
    signal: int  # that ended it, or 0
    farewell: spawn.Farewell  # its own last message
    lived: float  # seconds
    registered: bool  # it may have claimed jobs
    interrupted: int  # jobs that it had started and not finished
    was_killed: bool  # at the deadline of its state


class Child:
    """Runs one worker process after another. Used only by the thread of its supervisor."""

    def __init__(self) -> None:
        # Of the current or the last process. Times are of the monotonic clock.
        self.worker = 0  # its id
        self.started_at = 0.0
        self.state = STARTING  # at the last ``look``
        self.jobs = StartedJobs.private(1)
        self.start_at = 0.0  # when the next process may start
        self.leaving = False  # whether the supervisor has one process too many, and chose this one to end
        self.stillbirths = 0  # so many processes in a row ended before they had registered
        self._since = 0.0  # the beginning of the state
        self._warned = False
        self._killed_because = ""
        self._process: subprocess.Popen[bytes] | None = None
        self._line: socket.socket | None = None
        self._quick_ends = 0

    # -- the process

    @property
    def pid(self) -> int | None:
        """The id of the current process; None if there is none."""
        return None if self._process is None else self._process.pid

    @property
    def over(self) -> bool:
        """Whether there is no process and none will be started."""
        return self._process is None and self.start_at == _NEVER

    @property
    def lives(self) -> bool:
        """Whether its process exists and is not suspended."""
        return (
            self._process is not None
            and not spawn.has_ended(self._process)
            and not spawn.is_stopped(self._process)
        )

    @property
    def registered(self) -> bool:
        """Whether there is a process that has registered, and so claims jobs."""
        return self._process is not None and bool(self.jobs.registered)

    @property
    def is_slow(self) -> bool:
        """Whether there is a process that has been in its state for longer than usual."""
        return self._process is not None and monotonic() > self._since + self.state.warn_after

    def start(self, assignment: Assignment) -> None:
        """Start a process; there must be none. Raises ``OSError`` if the system refuses. On Linux, the
        process dies with the *thread* that started it (``spawn``), so call it on one that lives longer.
        """
        self.started_at = monotonic()
        self._enter(STARTING)
        self._killed_because = ""
        self.jobs.close_file()
        self.jobs = StartedJobs.create(assignment.options.slots)
        line, its_end = socket.socketpair()
        try:
            with its_end, _starting:
                self._process = spawn.start("worker", its_end, self.jobs.file)
        except OSError:
            line.close()
            raise
        with suppress(OSError):  # it has ended already
            given = replace(assignment, started_jobs=self.jobs.file)
            line.sendall(f"{given.to_json()}\n".encode())
        self._line = line
        self.worker = assignment.worker
        logger.info("process %s started", self._process.pid)

    def send_signal(self, number: int) -> None:
        """Send a signal to its process, if there is one."""
        # Popen.send_signal() would reap a process that has ended: see `poll`.
        if self._process is not None and not spawn.has_ended(self._process):
            os.kill(self._process.pid, number)

    def kill(self, because: str = "", *, shows_stacks: bool = False) -> None:
        """Kill its process. ``poll`` returns when it has ended, and ends what its tasks have started.
        ``shows_stacks``: whether it writes before what its jobs do (``StartedJobs.stacks``).
        """
        self._killed_because = because
        if shows_stacks and SHOW_STACKS:
            self.send_signal(SHOW_STACKS)
            until = monotonic() + _SHOWN_WITHIN
            while not self.jobs.has_text and monotonic() < until:
                sleep(0.01)
            sleep(0.01)  # for the rest of the text
        self.send_signal(signal.SIGKILL)

    def look(self, jobs: Callable[[], object]) -> None:
        """See what its process does. Log once if it is slow, and kill it at the deadline of the state.

        ``jobs`` returns the jobs that it runs, for the log.
        """
        if self._process is None or self._killed_because:
            return
        until = self.jobs.drains_until
        if self._line is not None and spawn.last_words(self._line):
            state = ENDING
        elif not self.jobs.is_set_up:
            state = STARTING
        else:
            state = DRAINING if until else WORKING
        if state is not self.state:
            self._enter(state)
        since = until if state is DRAINING else self._since
        if monotonic() > since + state.killed_after:
            self.kill(state.why % state.killed_after)
            logger.error("killing process %s: %s", self._process.pid, self._killed_because)
        elif self.is_slow and not self._warned:
            self._warned = True
            given = {"now": state.warn_after, "killed": state.killed_after, "jobs": jobs()}
            logger.warning(state.warning, {"pid": self._process.pid, **given})

    def _enter(self, state: State) -> None:
        self.state = state
        self._since = monotonic()
        self._warned = False

    def poll(self) -> End | None:
        """Return, once, how its process has ended; None if it has not."""
        process, line = self._process, self._line
        if process is None or line is None or not spawn.has_ended(process):
            return None
        farewell = spawn.last_words(line) or spawn.Farewell(cause=self._killed_because)
        # Race: another process may get its number, which is also the number of the group, as soon as it is
        # reaped, so the group is signaled before. A process that ended in an orderly way may have started
        # another one that cleans up after it, as multiprocessing does: that one gets SIGTERM. What a crashed
        # process leaves behind gets SIGKILL.
        # Some systems refuse to signal a group that contains only the process that has ended.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL if farewell.code is None else signal.SIGTERM)
        code = process.wait()
        line.close()
        self._process = self._line = None
        how = spawn.how_it_ended(code) + (f" ({farewell.cause})" if farewell.cause else "")
        begun = "?" if (noted := self.jobs.begun()) is None else noted  # too many to note count as one
        return End(
            process.pid, how, max(0, -code), farewell,
            lived=monotonic() - self.started_at,
            registered=self.jobs.registered,
            interrupted=farewell.interrupted if farewell.code is not None else len(begun),
            was_killed=bool(self._killed_because),
        )  # fmt: skip

    def wait(self, seconds: float) -> End | None:
        """Like ``poll``, but wait up to ``seconds`` for the end."""
        end = monotonic() + seconds
        while (ended := self.poll()) is None and self._process is not None and monotonic() < end:
            sleep(0.01)
        return ended

    # -- the next process

    def retire(self) -> None:
        """Do not start another process here."""
        self.start_at = _NEVER

    def put_off(self, lived: float, *, registered: bool) -> None:
        """A process has failed after ``lived`` seconds: delay the next one, longer after each failure."""
        self.stillbirths = 0 if registered else self.stillbirths + 1
        self._quick_ends = self._quick_ends + 1 if lived < QUICK else 0
        failures = max(self._quick_ends, self.stillbirths)
        pause = 0.1 * 2 ** min(failures, 10) * random.uniform(0.8, 1.2)
        self.start_at = monotonic() + (min(LONGEST_BACKOFF, pause) if failures else 0.0)


def reap_orphans(own: Callable[[], Container[int | None]]) -> None:
    """Reap all processes that have ended except what ``own`` returns: the supervisor reads these exit codes.

    The first process of a container becomes the parent of processes whose parent has ended, such as the
    processes that a browser leaves behind. In Kubernetes, that is the worker unless the image has
    an init process.
    """
    while True:
        try:
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:  # there are no child processes
            return
        # waitid() shows one ended process at a time: while it is one of our own, the others wait a turn.
        with _starting:
            if found is None or found.si_pid in own():
                return
            with suppress(ChildProcessError):
                os.waitpid(found.si_pid, 0)
