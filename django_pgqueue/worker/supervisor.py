"""The supervisor: starts the worker processes, watches them, does the upkeep. It runs no task itself.

    start:   connect, tell the ring how long to keep, start the processes
    watch:   every heartbeat: one statement that says which processes live; replace those that ended
    upkeep:  short rounds that any supervisor may do (``upkeep/``)
    stop:    forward the signal, wait for the processes, as long as their grace

Since it runs no task, a task that holds the GIL of its process cannot keep it from beating for that process.
A process that is stopped (SIGSTOP) exists but does not live: nobody beats for it.
"""

from __future__ import annotations

import logging
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

import psycopg

from .. import conf
from ..upkeep import rounds
from .connection import connect
from .process import FINISHED, RECYCLED, Assignment, new_id
from .waker import Waker

if TYPE_CHECKING:
    from types import FrameType

    from .connection import Session
    from .options import WorkerOptions

__all__ = ["Supervisor"]

logger = logging.getLogger(__name__)

KILL_AFTER = 5.0  # seconds beyond the grace
LONGEST_BACKOFF = 30.0  # seconds between two starts of a process that keeps crashing
QUICK = 1.0  # seconds; a process that ends sooner is not replaced at once
STILLBIRTHS = 5  # processes that end, one after another, before they have registered: none ever will

_LOST_CONNECTION = (psycopg.OperationalError, psycopg.InterfaceError)


class _Child:
    """One place for a worker process, and the process in it."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self.worker = 0
        self.started = 0.0
        self.start_at = 0.0
        self.quick_ends = 0
        self.stillbirths = 0

    def forget_process(self) -> None:
        """It has ended; close our end of its standard input."""
        if self.process is not None and self.process.stdin is not None:
            self.process.stdin.close()
        self.process = None


class Supervisor:
    """Runs worker processes until told to stop. ``run`` returns the exit code of the command."""

    def __init__(self, options: WorkerOptions, verbosity: int = 1) -> None:
        self.options = options
        self._verbosity = verbosity
        self._id = new_id()
        self._waker = Waker()
        self._children = [_Child() for _ in range(options.processes)]
        self._session: Session | None = None
        self._next_connect = 0.0
        self._next_beat = 0.0
        self._rounds = rounds.Rounds()
        self._signals = 0
        self._forwarded = 0
        self._stop_by = float("inf")
        self._exit_code = 0

    def run(self) -> int:
        """Work until stopped, or in a burst until all processes have found nothing due.

        Raises ``psycopg.OperationalError`` if there is no server at the start; later it waits for its return.
        """
        self._session = connect(self.options.alias)
        rounds.tell_retention(self._session)
        self._catch_signals()
        try:
            while self._turn():
                self._waker.sleep(self._pause(), lambda: self._signals > self._forwarded)
        finally:
            self._kill_all()
            if self._session is not None:
                self._session.close()
        return self._exit_code

    def stop(self) -> None:
        """Stop as SIGTERM does; a second call shortens the grace. Safe in a signal handler."""
        self._signals += 1
        self._waker.interrupt()

    # -- one turn

    def _turn(self) -> bool:
        """False when all is over."""
        if self._signals > self._forwarded:
            self._forward()
        for child in self._children:
            self._watch(child)
        if all(child.process is None and child.start_at == float("inf") for child in self._children):
            return False
        now = monotonic()
        if now >= self._stop_by:
            logger.warning("some processes did not stop within the grace and are killed")
            return False
        self._serve_database(now)
        return True

    def _pause(self) -> float:
        now = monotonic()
        starts = [child.start_at for child in self._children if child.process is None]
        return max(0.0, min([self._next_beat, self._stop_by, *starts]) - now)

    def _forward(self) -> None:
        self._forwarded = self._signals
        grace = self.options.grace if self._signals == 1 else 0.0
        self._stop_by = min(self._stop_by, monotonic() + grace + KILL_AFTER)
        logger.info("stopping; running jobs have %g seconds", grace)
        # Two of one kind may arrive as one: a hasty stop sends one of each.
        numbers = [signal.SIGTERM] if grace else [signal.SIGTERM, signal.SIGINT]
        for child in self._children:
            child.start_at = float("inf")
            if child.process is not None:
                for number in numbers:
                    child.process.send_signal(number)

    # -- the processes

    def _watch(self, child: _Child) -> None:
        now = monotonic()
        if child.process is None:
            if now >= child.start_at:
                self._start(child)
            return
        code = child.process.poll()
        if code is None:
            return
        lived = now - child.started
        pid = child.process.pid
        child.forget_process()
        if code == FINISHED:
            child.start_at = float("inf") if self.options.burst or self._signals else now
        elif code == RECYCLED:
            logger.info("process %s has had its day and is replaced", pid)
            child.start_at = float("inf") if self._signals else now
        else:
            self._crashed(child, pid, code, lived)

    def _crashed(self, child: _Child, pid: int, code: int, lived: float) -> None:
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        # One that has no handler yet simply ends by the signal that tells it to stop.
        stopped = self._signals and -code in (signal.SIGTERM, signal.SIGINT)
        logger.log(
            logging.INFO if stopped else logging.ERROR, "process %s ended by %s after %.1f s", pid, how, lived
        )
        child.stillbirths = child.stillbirths + 1 if self._give_back(child.worker) is False else 0
        child.quick_ends = child.quick_ends + 1 if lived < QUICK else 0
        if self._signals:
            child.start_at = float("inf")
        elif child.stillbirths >= STILLBIRTHS:
            logger.critical(
                "worker processes cannot start (%s, %s times in a row): see above", how, STILLBIRTHS
            )
            self._exit_code = 1
            self.stop()
            child.start_at = float("inf")
        else:
            failures = max(child.quick_ends, child.stillbirths)
            pause = min(LONGEST_BACKOFF, 0.1 * 2 ** min(failures, 10)) * random.uniform(0.8, 1.2)
            child.start_at = monotonic() + (pause if failures else 0.0)

    def _start(self, child: _Child) -> None:
        child.worker = new_id()
        child.started = monotonic()
        assignment = Assignment(self.options, child.worker, self._id, self._verbosity)
        child.process = subprocess.Popen(
            [sys.executable, "-m", "django_pgqueue.worker", assignment.to_json()],
            stdin=subprocess.PIPE,
            # The path by which this process finds the project's modules, whatever started it.
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path)},
            # Out of the terminal's group: Ctrl-C comes once, from here.
            process_group=0 if os.name == "posix" else None,
        )
        logger.info("process %s started", child.process.pid)

    def _kill_all(self) -> None:
        for child in self._children:
            if child.process is not None:
                child.process.kill()
                child.process.wait()
                child.forget_process()
                self._give_back(child.worker)

    # -- the database

    def _serve_database(self, now: float) -> None:
        """Beat and upkeep. Without a connection: look for one, without stopping to watch the processes."""
        try:
            if self._session is None:
                if now < self._next_connect:
                    return
                self._session = connect(self.options.alias)
                logger.info("connected again")
            if now >= self._next_beat:
                self._next_beat = now + conf.current().heartbeat
                self._beat(self._session)
            self._rounds.run(self._session, now)
        except psycopg.Error as error:
            if isinstance(error, _LOST_CONNECTION):
                logger.warning("no connection: %s", str(error).strip() or type(error).__name__)
            else:  # a round of upkeep that fails must not take the workers down
                logger.exception("upkeep failed; it is tried again over a new connection")
            if self._session is not None:
                self._session.close()
            self._session = None
            self._next_connect = now + random.uniform(0.5, 2.0)
            self._next_beat = self._next_connect

    def _beat(self, session: Session) -> None:
        alive = [
            child.worker
            for child in self._children
            if child.process is not None and _lives(child.process.pid)
        ]
        session.run(
            (
                "UPDATE pgqueue_worker SET heartbeat_at = clock_timestamp() WHERE id = ANY (%s::bigint[])",
                (alive,),
            ),
            durable=False,
        )

    def _give_back(self, worker: int) -> bool | None:
        """The process has ended without signing off: nobody has to wait until it counts as dead.

        Returns whether it had registered, None if that cannot be known now.
        """
        if self._session is None:
            return None
        try:
            (known,) = self._session.run(("SELECT id FROM pgqueue_worker WHERE id = %s", (worker,)))
            jobs = rounds.recover(self._session, [worker])
        except psycopg.Error as error:
            logger.warning("its jobs wait for recovery: %s", str(error).strip())
            return None
        if jobs:
            logger.warning("%d jobs of the process that ended go back to their queues", jobs)
        return bool(known)

    def _catch_signals(self) -> None:
        def stop(number: int, frame: FrameType | None) -> None:
            self.stop()

        def wake(number: int, frame: FrameType | None) -> None:
            self._waker.interrupt()

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, stop)
        signal.signal(signal.SIGCHLD, wake)


def _lives(pid: int) -> bool:
    """Whether a process exists and is not stopped. Where there is no /proc, that it exists must do."""
    try:
        # The state is the first field after the name, which is in brackets and may hold anything.
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state not in {"T", "t", "Z"}
