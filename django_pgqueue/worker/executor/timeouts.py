"""Timeouts: ``TaskTimeout`` in the task first, and a grace later the end of its process.

    runs --timeout over, and the row says so too--> TaskTimeout is raised in the task
    TaskTimeout raised --ends within TIMEOUT_GRACE--> a failed attempt like any other
    TaskTimeout raised --goes on--> overdue: the producer replaces the process

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
    import asyncio
    from collections.abc import Callable

    from ...lifecycle.claim import Claimed
    from ..processes.started_jobs import StartedJobs

__all__ = ["Timeout", "Timeouts"]

logger = logging.getLogger(__name__)

LONGEST_PAUSE = 3600.0  # seconds

_SECONDS_LEFT_SQL = """
    SELECT extract(epoch FROM deadline - clock_timestamp())::double precision
    FROM pgqueue_job_live WHERE id = %s AND lease = %s
"""


class Timeout:
    """The timeout of one running job."""

    def __init__(
        self,
        row: Claimed,
        seconds: float,
        on_overdue: Callable[[], None],
        coroutine: asyncio.Task[Any] | None,
        started_jobs: StartedJobs,
    ) -> None:
        self.row = row
        self.until = monotonic() + seconds
        """When the timeout is over; the job may put it off."""
        self.look_at = self.until
        """When to look at it next."""
        self.timed_out = False
        """Whether ``TaskTimeout`` was sent."""
        self.ended = False
        self.on_overdue = on_overdue
        """Called on the watching thread when the job has outlived its timeout and the grace."""
        self._coroutine = coroutine
        self._started_jobs = started_jobs
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
        if self._coroutine is not None:
            self._coroutine.get_loop().call_soon_threadsafe(self._cancel)
            return
        with self._lock:
            if self._is_over() and self._thread is not None:
                self._say()
                _raise_in_thread(self._thread, ctypes.py_object(TaskTimeout))

    def _cancel(self) -> None:
        """On the thread of the loop."""
        with self._lock:
            if self._is_over() and self._coroutine is not None:
                self._say()
                self._coroutine.cancel()

    def _say(self) -> None:
        self.timed_out = True
        logger.warning("job %s has run longer than its timeout", self.row.id)

    def _note(self) -> None:
        self._started_jobs.limit(self.row.id, self.until + conf.current().timeout_grace)

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


class Timeouts:
    """Those of the jobs that run in this process, watched by a thread that starts with the first."""

    def __init__(self, alias: str, started_jobs: StartedJobs) -> None:
        self._alias = alias
        self._started_jobs = started_jobs
        self._watched: set[Timeout] = set()
        self._news = Condition()
        self._wakes_at = float("inf")
        self._thread: Thread | None = None

    def begin(
        self,
        row: Claimed,
        seconds: float,
        on_overdue: Callable[[], None],
        coroutine: asyncio.Task[Any] | None = None,
    ) -> Timeout:
        """Watch a job that starts now. ``coroutine``: its task of asyncio, if it is async."""
        timeout = Timeout(row, seconds, on_overdue, coroutine, self._started_jobs)
        self._watched.add(timeout)
        # Jobs come and go by the thousand, mostly with the same timeout: the thread is woken only for one
        # whose time comes before that of all the others.
        if timeout.look_at < self._wakes_at:
            with self._news:
                self._wakes_at = timeout.look_at
                self._news.notify()
                if self._thread is None:
                    self._thread = Thread(target=self._run, name="pgqueue-timeouts", daemon=True)
                    self._thread.start()
        return timeout

    def end(self, timeout: Timeout) -> None:
        """Its job has ended."""
        timeout.ended = True
        self._watched.discard(timeout)

    # -- the watching thread

    def _run(self) -> None:
        while True:
            now = monotonic()
            for timeout in [timeout for timeout in list(self._watched) if timeout.look_at <= now]:
                try:
                    self._look(timeout)
                except Exception:  # whatever it is, the other jobs keep their timeouts
                    logger.exception("job %s: its timeout could not be enforced", timeout.row.id)
                    timeout.look_at = now + 1.0
            with self._news:
                # Race: a job may begin after this look at the others; it finds a time to wake that is late.
                self._wakes_at = float("inf")
                looks = [timeout.look_at for timeout in list(self._watched)]
                self._wakes_at = min(looks, default=float("inf"))
                pause = self._wakes_at - monotonic()
                if pause > 0:
                    self._news.wait(min(pause, LONGEST_PAUSE))

    def _look(self, timeout: Timeout) -> None:
        """Its time has come, as far as this process knows."""
        grace = conf.current().timeout_grace
        if timeout.until <= monotonic() and (left := self._seconds_left(timeout)) > 0:
            timeout.put_off(left)
        timeout.look_at = timeout.until + (grace if timeout.timed_out else 0.0)
        if timeout.ended or timeout.look_at > monotonic():
            return
        if not timeout.timed_out:
            timeout.raise_in_task()
            timeout.timed_out = True  # whether it could be sent or not: the next look is the last
            timeout.look_at = timeout.until + grace
        else:
            timeout.look_at = float("inf")
            timeout.on_overdue()

    def _seconds_left(self, timeout: Timeout) -> float:
        """What the row says. If it cannot be asked, what we know has to do."""
        row = timeout.row
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


def _raise_in_thread(thread: int, exception: Any) -> None:
    """Documented in Python's C API, "Thread State and the Global Interpreter Lock"."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), exception)
