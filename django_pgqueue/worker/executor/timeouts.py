"""Timeouts: first ``TaskTimeout`` is raised in the task, and after a grace period its process is replaced.

    runs --timeout over, and the row confirms it--> TaskTimeout is raised in the task
    TaskTimeout raised --ends within TIMEOUT_GRACE--> a failed attempt like any other
    TaskTimeout raised --keeps running--> overdue: the producer replaces the process

Before each step the row's deadline is read again: the job itself or an operator may have extended it.

A sync task gets the exception between two instructions of its thread (``PyThreadState_SetAsyncExc``). A
blocking call into C is not interrupted. Race: the task may end after the exception was sent and before it
arrives, and would then be raised in the worker's own code. Therefore, a thread that leaves the body waits
while the exception is sent, and takes it back if it has not arrived. The thread acquires no lock: since
Python 3.14, an exception can arrive after ``with`` has acquired it and before the block that releases it.

An async task is cancelled on its loop's thread, where nothing else happens at the same time.
"""

from __future__ import annotations

import asyncio
import ctypes
from collections.abc import Callable
from contextlib import closing
from threading import Condition, Lock, Thread, get_ident
from time import monotonic, sleep
from typing import Any

import psycopg

from ... import conf
from ...exceptions import TaskTimeout
from ...formatting import get_logger
from ...jobs.claim import Claimed
from ...postgres import sql_of
from ...postgres.session import connect
from ..started_jobs import StartedJobs

logger = get_logger(__name__)

LONGEST_PAUSE = 3600.0  # seconds

_SECONDS_LEFT_SQL = sql_of(__file__, "seconds_left")


class Timeout:
    """The timeout of one running job. ``on_overdue`` is called on the watching thread if it still runs after
    its timeout and the grace period. ``coroutine``: its asyncio task, if it is async.
    """

    def __init__(
        self,
        row: Claimed,
        seconds: float,
        on_overdue: Callable[[], None],
        coroutine: asyncio.Task[Any] | None,
        started_jobs: StartedJobs,
    ) -> None:
        self.row = row
        self.until = 0.0  # when it ends; the job may postpone it
        self.timed_out = False  # whether ``TaskTimeout`` was sent
        self.ended = False
        self.on_overdue = on_overdue
        self._coroutine = coroutine
        self._started_jobs = started_jobs
        self._lock = Lock()
        self._thread: int | None = None
        self.put_off(seconds)
        self.look_at = self.until  # when to check it next

    def call(self, function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Call the body of a sync task. ``TaskTimeout`` may be raised only inside it."""
        try:
            self._thread = get_ident()
            if self.timed_out:  # before the body: its payload, or a hook, has taken all the time
                raise TaskTimeout
            value = function(*args, **kwargs)
        except BaseException:
            self._leave()
            raise
        self._leave()
        return value

    def put_off(self, seconds: float) -> None:
        """Postpone the timeout so that it does not come within the next ``seconds``."""
        # Race: the watching thread may do so, too. What is lost here is in the row, which it reads again.
        self.until = max(self.until, monotonic() + seconds)
        self._started_jobs.limit(self.row.id, self.until + conf.current().timeout_grace)
        self._wait_while_it_is_sent()

    def raise_in_task(self) -> None:
        """Send ``TaskTimeout``, unless the task has ended."""
        if self._coroutine is not None:
            self._coroutine.get_loop().call_soon_threadsafe(self._send)
        else:
            self._send()

    def _send(self) -> None:
        # Race: the task may postpone its timeout at this moment. It either does so in time and gets no
        # exception, or is too late and gets one before it goes on.
        with self._lock:  # held only here
            if self.ended or self.until > monotonic():
                return
            self.timed_out = True
            logger.warning("job %s has run longer than its timeout", self.row.id)
            if self._coroutine is not None:
                self._coroutine.cancel()
            elif (thread := self._thread) is not None:
                _raise_in_thread(thread, ctypes.py_object(TaskTimeout))

    def _leave(self) -> None:
        while True:
            try:
                self._thread = None
                self._wait_while_it_is_sent()
                # An empty py_object takes back an exception that has not arrived.
                _raise_in_thread(get_ident(), ctypes.py_object())
            except TaskTimeout:
                continue  # it arrived here: the body had ended already, so the task was in time
            return

    def _wait_while_it_is_sent(self) -> None:
        while self._lock.locked():
            sleep(0.001)


class Timeouts:
    """The timeouts of the jobs in this process, watched by a thread that starts with the first of them."""

    def __init__(self, alias: str) -> None:
        self._alias = alias
        self._watched: set[Timeout] = set()
        self._news = Condition()
        self._wakes_at = float("inf")
        self._thread: Thread | None = None

    def watch(self, timeout: Timeout) -> None:
        """Watch a job that starts now."""
        self._watched.add(timeout)
        # Thousands of jobs come and go, so only one whose timeout comes before all others wakes the thread.
        if timeout.look_at < self._wakes_at:
            with self._news:
                self._wakes_at = timeout.look_at
                self._news.notify()
                if self._thread is None:
                    self._thread = Thread(target=self._run, name="pgqueue-timeouts", daemon=True)
                    self._thread.start()

    def forget(self, timeout: Timeout) -> None:
        """Stop watching a timeout whose job has ended."""
        timeout.ended = True
        self._watched.discard(timeout)

    # -- the watching thread

    def _run(self) -> None:
        while True:
            now = monotonic()
            due = [timeout for timeout in list(self._watched) if timeout.look_at <= now]
            left = self._seconds_left([timeout.row for timeout in due if timeout.until <= now])
            for timeout in due:
                try:
                    self._look(timeout, left.get(timeout.row.id, 0.0))
                except Exception:  # the other jobs must keep their timeouts
                    logger.exception("job %s: its timeout could not be enforced", timeout.row.id)
                    timeout.look_at = now + 1.0
            with self._news:
                # Race: a job may begin after this look at the others. It then finds no earlier wake-up time.
                self._wakes_at = float("inf")
                looks = [timeout.look_at for timeout in list(self._watched)]
                self._wakes_at = min(looks, default=float("inf"))
                pause = self._wakes_at - monotonic()
                if pause > 0:
                    self._news.wait(min(pause, LONGEST_PAUSE))

    def _look(self, timeout: Timeout, seconds_left: float) -> None:
        """Handle a timeout that this process takes for passed. ``seconds_left``: as the row says."""
        grace = conf.current().timeout_grace
        if seconds_left > 0:
            timeout.put_off(seconds_left)
        timeout.look_at = timeout.until + (grace if timeout.timed_out else 0.0)
        if timeout.ended or timeout.look_at > monotonic():
            return
        if not timeout.timed_out:
            timeout.raise_in_task()
            timeout.timed_out = True  # even if it could not be sent: the next check is the last one
            timeout.look_at = timeout.until + grace
        else:
            timeout.look_at = float("inf")
            timeout.on_overdue()

    def _seconds_left(self, rows: list[Claimed]) -> dict[int, float]:
        """Return the seconds to these deadlines, if readable, by one connection for thousands of jobs."""
        if not rows:
            return {}
        try:
            with closing(connect(self._alias)) as session:
                found = session.rows(_SECONDS_LEFT_SQL, ([row.id for row in rows],))
        except psycopg.Error as error:
            ids, reason = [row.id for row in rows[:10]], str(error).strip()
            logger.warning("the deadlines of %d jobs (%s) could not be read: %s", len(rows), ids, reason)
            return {}
        leases = {row.id: row.lease for row in rows}
        return {job_id: seconds for job_id, lease, seconds in found if leases[job_id] == lease}


def _raise_in_thread(thread: int, exception: Any) -> None:
    """Raise in another thread. See Python's C API, "Thread State and the Global Interpreter Lock"."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), exception)
