"""Timeouts: ``TaskTimeout`` in the task first, and a grace later the end of its process.

    runs --timeout over, and the row says so too--> TaskTimeout is raised in the task
    TaskTimeout raised --ends within TIMEOUT_GRACE--> a failed attempt like any other
    TaskTimeout raised --goes on--> overdue: the pump replaces the process

Before either, the row's deadline is read again: the job itself or an operator may have extended it.

A sync task gets the exception between two instructions of its thread (``PyThreadState_SetAsyncExc``): a call
into C that blocks is not interrupted. Race: the task may end while the exception is on its way, and then it
would be raised in the worker's own code. So sending it and leaving the body exclude each other by a lock, and
whoever leaves takes back what was sent and has not arrived.

An async task is cancelled on its loop's thread, where nothing else happens meanwhile.
"""

from __future__ import annotations

import ctypes
import logging
from threading import Condition, Lock, Thread, get_ident
from time import monotonic
from typing import TYPE_CHECKING, Any

import psycopg

from ... import conf
from ...exceptions import TaskTimeout
from ...session import connect

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..processes.started_jobs import Board
    from .running_job import RunningJob

__all__ = ["Deadlines", "Limit"]

logger = logging.getLogger(__name__)

LONGEST_PAUSE = 3600.0  # seconds

_SECONDS_LEFT_SQL = """
    SELECT extract(epoch FROM deadline - clock_timestamp())::double precision
    FROM pgqueue_job_live WHERE id = %s AND lease = %s
"""


class Limit:
    """The timeout of one running job."""

    def __init__(self, running: RunningJob, seconds: float, board: Board) -> None:
        self.running = running
        self.until = monotonic() + seconds
        """When the timeout is over; the job may put it off."""
        self.look_at = self.until
        """When to look at it next."""
        self.timed_out = False
        """Whether ``TaskTimeout`` was sent."""
        self.ended = False
        self.on_overdue: Callable[[RunningJob], None] = _ignore
        self._board = board
        self._lock = Lock()
        self._thread: int | None = None
        self._note()

    def call(self, function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Call the body of a sync task: in it, and only in it, ``TaskTimeout`` may be raised."""
        self._thread = get_ident()
        try:
            value = function(*args, **kwargs)
        except BaseException:
            self._leave()
            raise
        self._leave()
        return value

    def put_off(self, seconds: float) -> None:
        """The timeout comes no sooner than ``seconds`` from now."""
        with self._lock:
            self.until = max(self.until, monotonic() + seconds)
            self._note()

    def raise_in_task(self) -> None:
        """Send ``TaskTimeout``, unless the task has ended.

        Race: the task may put its timeout off at this moment. Either it is in time and gets no exception, or
        it is too late and gets one.
        """
        coroutine = self.running.coroutine
        if coroutine is not None:
            coroutine.get_loop().call_soon_threadsafe(self._cancel)
            return
        with self._lock:
            if self._is_over() and self._thread is not None:
                self._say()
                _raise_in_thread(self._thread, ctypes.py_object(TaskTimeout))

    def _cancel(self) -> None:
        """On the thread of the loop."""
        with self._lock:
            if self._is_over() and self.running.coroutine is not None:
                self._say()
                self.running.coroutine.cancel()

    def _say(self) -> None:
        self.timed_out = True
        logger.warning("job %s has run longer than its timeout", self.running.row.id)

    def _note(self) -> None:
        self._board.limit(self.running.row.id, self.until + conf.current().timeout_grace)

    def _is_over(self) -> bool:
        return not self.ended and self.until <= monotonic()

    def _leave(self) -> None:
        while True:
            try:
                with self._lock:
                    thread, self._thread = self._thread, None
                    if thread is not None:  # nothing: takes back what has not arrived
                        _raise_in_thread(thread, ctypes.py_object())
            except TaskTimeout:
                continue  # it arrived here: the body had ended, so nobody has missed its time
            return


class Deadlines:
    """The limits of the jobs that run in this process, watched by a thread that starts with the first."""

    def __init__(self, alias: str, board: Board) -> None:
        self.on_overdue: Callable[[RunningJob], None] = _ignore
        """Called on the watching thread when a job has outlived its timeout and the grace."""
        self._alias = alias
        self._board = board
        self._limits: set[Limit] = set()
        self._news = Condition()
        self._wakes_at = float("inf")
        self._thread: Thread | None = None

    def begin(self, running: RunningJob, on_overdue: Callable[[RunningJob], None] | None = None) -> None:
        """Watch a job that starts now, if it has a timeout. ``on_overdue``: instead of that of all jobs."""
        if running.row.timeout is None:
            return
        limit = running.limit = Limit(running, running.row.timeout, self._board)
        limit.on_overdue = on_overdue or self.on_overdue
        self._limits.add(limit)
        # Jobs come and go by the thousand, mostly with the same timeout: the thread is woken only for one
        # whose time comes before that of all the others.
        if limit.look_at < self._wakes_at:
            with self._news:
                self._wakes_at = limit.look_at
                self._news.notify()
                if self._thread is None:
                    self._thread = Thread(target=self._run, name="pgqueue-deadlines", daemon=True)
                    self._thread.start()

    def end(self, running: RunningJob) -> None:
        """The job has ended."""
        if running.limit is not None:
            running.limit.ended = True
            self._limits.discard(running.limit)

    # -- the watching thread

    def _run(self) -> None:
        while True:
            now = monotonic()
            for limit in [limit for limit in list(self._limits) if limit.look_at <= now]:
                try:
                    self._look(limit)
                except Exception:  # whatever it is, the other jobs keep their timeouts
                    logger.exception("job %s: its timeout could not be enforced", limit.running.row.id)
                    limit.look_at = now + 1.0
            with self._news:
                # Race: a job may begin after this look at the others; it finds a time to wake that is late.
                self._wakes_at = float("inf")
                self._wakes_at = min((limit.look_at for limit in list(self._limits)), default=float("inf"))
                pause = self._wakes_at - monotonic()
                if pause > 0:
                    self._news.wait(min(pause, LONGEST_PAUSE))

    def _look(self, limit: Limit) -> None:
        """The limit's time has come, as far as this process knows."""
        grace = conf.current().timeout_grace
        if limit.until <= monotonic() and (left := self._seconds_left(limit)) > 0:
            limit.put_off(left)
        limit.look_at = limit.until + (grace if limit.timed_out else 0.0)
        if limit.ended or limit.look_at > monotonic():
            return
        if not limit.timed_out:
            limit.raise_in_task()
            limit.timed_out = True  # whether it could be sent or not: the next look is the last
            limit.look_at = limit.until + grace
        else:
            limit.look_at = float("inf")
            limit.on_overdue(limit.running)

    def _seconds_left(self, limit: Limit) -> float:
        """What the row says. If it cannot be asked, what we know has to do."""
        row = limit.running.row
        try:
            session = connect(self._alias)
            try:
                found = session.rows(_SECONDS_LEFT_SQL, (row.id, row.lease))
            finally:
                session.close()
        except psycopg.Error as error:
            logger.warning("job %s: its deadline cannot be read: %s", row.id, str(error).strip())
            return 0.0
        return max((seconds for (seconds,) in found if seconds is not None), default=0.0)


def _ignore(running: RunningJob) -> None:
    """Nobody to tell."""


def _raise_in_thread(thread: int, exception: Any) -> None:
    """Documented in Python's C API, "Thread State and the Global Interpreter Lock"."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), exception)
