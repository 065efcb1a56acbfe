"""Notice when jobs have finished: one thread for each database with jobs that a caller in this process waits
for.

    watch() --> a Future, which is due for a look after 5 ms, then after 10, 20 .. 250 ms
    the thread --> one statement for all that is due, or nearly due: which of these jobs are still live?
    a job that is not live any more --> its Future has a result

The thread has a connection of its own, beside those of Django and of a connection pool. It starts with the
first waiter, and ends when nobody has waited for a second. In a test it ends at once, and before the last
waiter continues, so that the test database can be dropped.

Race: a job ends between the moment when its waiter has read it and ``watch()``. Nothing is lost, since the
look comes after ``watch()``, and a job that has left the live leaf earlier is not live then either.

PostgreSQL could notify instead. But a notification in the transaction that ends a job would let the commits
of the whole database wait for each other.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from pathlib import Path
from threading import Condition, Lock, Thread
from time import monotonic

from ..formatting import get_logger
from ..postgres.session import LOST_CONNECTION, Session, connect
from ..tasks.routing import is_test

logger = get_logger(__name__)

LIVE_SQL = Path(__file__).with_name("live_jobs.sql").read_text(encoding="utf-8")

FIRST_PAUSE = 0.005  # seconds until the first look; doubled after each look
LONGEST_PAUSE = 0.25
LINGER = 1.0
#: Pauses of the attempts to connect again.
FIRST_RETRY = 0.1
LONGEST_RETRY = 2.0


def watch(alias: str, job: int) -> Future[None]:
    """Return a Future that has a result when the job is not live, which includes one that does not exist.

    Whoever stops waiting cancels it.
    """
    with _lock:
        poller = _pollers.get(alias)
        if poller is None:
            poller = _pollers[alias] = Poller(alias)
    return poller.watch(job)


_lock = Lock()
_pollers: dict[str, Poller] = {}


def _forget_all() -> None:
    """After a fork: the threads are those of the parent, and so are their connections and the locks."""
    global _lock, _pollers
    _lock, _pollers = Lock(), {}


os.register_at_fork(after_in_child=_forget_all)


class _Waiter:
    """A job that a caller waits for."""

    __slots__ = ("due", "future", "job", "pause")

    def __init__(self, job: int) -> None:
        self.job = job
        self.future: Future[None] = Future()
        self.pause = FIRST_PAUSE
        self.due = monotonic() + FIRST_PAUSE

    def is_nearly_due(self, now: float) -> bool:
        """Whether to look already, because there is a look anyway; true for all who have just come."""
        return self.due <= now + max(self.pause / 2, FIRST_PAUSE)

    def put_off(self) -> None:
        """Look again after a longer pause."""
        self.pause = min(2 * self.pause, LONGEST_PAUSE)
        self.due = monotonic() + self.pause


class Poller:
    """Looks at the jobs of one database. ``open_session``: how to connect, for tests."""

    def __init__(self, alias: str, open_session: Callable[[str], Session] | None = None) -> None:
        self._alias = alias
        self._open = open_session or _open
        self._changed = Condition()
        self._waiters: list[_Waiter] = []
        self._count = 0  # of the waiters whose future is not done
        self._thread: Thread | None = None
        self._next_look = 0.0
        self._session: Session | None = None
        self._retry_pause = 0.0

    def watch(self, job: int) -> Future[None]:
        """See the function ``watch``."""
        waiter = _Waiter(job)
        with self._changed:
            if self._thread is None or not self._thread.is_alive():
                thread = Thread(target=self._run, name=f"pgqueue join {self._alias}", daemon=True)
                thread.start()  # it cannot do anything before this block ends
                self._thread = thread
            self._waiters.append(waiter)
            self._count += 1
            if waiter.due < self._next_look or self._count == 1:
                self._changed.notify()
        waiter.future.add_done_callback(self._left)
        return waiter.future

    def _left(self, _: Future[None]) -> None:
        with self._changed:
            self._count -= 1
            if not self._count:
                self._changed.notify()

    def _run(self) -> None:
        while due := self._wait_for_due():
            self._look(due)

    def _wait_for_due(self) -> list[_Waiter]:
        """Return those to look at, after a wait; an empty list if the thread shall end.

        Those that are due soon are looked at together with those that are due. So waiters that have started
        at different times share their statements later.
        """
        with self._changed:
            while True:
                if not self._count:
                    self._waiters.clear()
                    if not self._changed.wait_for(lambda: self._count, 0 if is_test() else LINGER):
                        # Race: a caller begins to wait now. So this is in the block: either the thread sees
                        # that waiter, or the waiter starts another thread, which opens its own session.
                        self._close()
                        self._thread = None
                        return []
                self._waiters = [waiter for waiter in self._waiters if not waiter.future.done()]
                now = monotonic()
                self._next_look = min((waiter.due for waiter in self._waiters), default=now)
                if self._waiters and self._next_look <= now:
                    return [waiter for waiter in self._waiters if waiter.is_nearly_due(now)]
                self._changed.wait(self._next_look - now)

    def _look(self, waiters: list[_Waiter]) -> None:
        try:
            if self._session is None:
                self._session = self._open(self._alias)
            jobs = sorted({waiter.job for waiter in waiters})
            live = {job for (job,) in self._session.rows(LIVE_SQL, (jobs, jobs))}
        except LOST_CONNECTION as error:
            self._put_off(waiters, error)
            return
        except Exception as error:  # a missing table, a missing right: waiting would not help
            self._close()
            _tell(waiters, error)
            return
        self._retry_pause = 0.0
        over = [waiter for waiter in waiters if waiter.job not in live]
        for waiter in waiters:
            waiter.put_off()
        if is_test() and len(over) == len(self._waiters):
            self._close()
        _tell(over, None)

    def _put_off(self, waiters: list[_Waiter], error: Exception) -> None:
        """Look again after a pause, in a new session. Waiters give up when their own timeout is over."""
        self._close()
        if not self._retry_pause:
            logger.warning("waiting for jobs in the database %r: %s", self._alias, str(error).strip())
        self._retry_pause = min(2 * self._retry_pause or FIRST_RETRY, LONGEST_RETRY)
        for waiter in waiters:
            waiter.due = monotonic() + self._retry_pause

    def _close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()


def _open(alias: str) -> Session:
    session = connect(alias, name="pgqueue join", standby=True)
    if not session.pooled:
        # How many jobs there are, and how many of them are waited for, changes all the time.
        session.connection.execute("SET plan_cache_mode TO force_custom_plan")
    return session


def _tell(waiters: Iterable[_Waiter], error: Exception | None) -> None:
    for waiter in waiters:
        if not waiter.future.set_running_or_notify_cancel():
            continue
        if error is None:
            waiter.future.set_result(None)
        else:
            waiter.future.set_exception(error)
