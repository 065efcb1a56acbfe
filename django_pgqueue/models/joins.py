"""``job.join()``: wait until a job has finished.

The job is read on the caller's connection before and after the wait. In between, one thread for each database
polls for all waiters of the process:

    watch() --> a Future, which is due for a look after 5 ms, then after 10, 20 .. 250 ms
    the thread --> one statement for all that is due, or nearly due: which of these jobs are still live?
    a job that is not live any more --> its Future has a result

The thread has a connection of its own, beside the connections of Django and of a pool. It starts with the
first waiter, and ends when no caller has waited for a second. In a test it ends at once, and before the last
waiter continues, so that the test database can be dropped.

Race: a job ends between the moment when its waiter has read it and ``watch()``. Nothing is lost, since the
look comes after ``watch()``, and a job that has left the live leaf earlier is not live then either.

PostgreSQL could notify instead. But a notification in the transaction that ends a job would let the commits
of the whole database wait for each other.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import cached_property
from threading import Condition, Thread
from time import monotonic
from typing import Any, Self

from asgiref.sync import sync_to_async
from django.core.exceptions import ObjectDoesNotExist
from django.db import InterfaceError, OperationalError, connections, router
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.transaction import TransactionManagementError
from django.utils.text import Truncator

from ..exceptions import duration
from ..formatting import get_logger
from ..postgres import sql_of
from ..postgres.aliases import write_alias
from ..postgres.clock import server_now
from ..postgres.session import LOST_CONNECTION, Session, connect
from ..redaction import redact_text
from ..tasks.links import Link
from ..tasks.routing import is_test

logger = get_logger(__name__)

LIVE_SQL = sql_of(__file__, "live_jobs")
#: The exception of a task's timeout reaches a thread between two instructions, so no wait is longer.
SLICE = 1.0
FIRST_PAUSE = 0.005  # seconds until the first look; doubled after each look
LONGEST_PAUSE = 0.25
LINGER = 1.0
_MOST_OF_ERROR = 300  # characters


class Joins:
    """The methods of ``Job`` and ``JobBatch`` for whoever waits for the end."""

    def as_link(self) -> Link:
        """Return where this is, for ``task.using(after=...)``. Raise ValueError if it has no id."""
        row: Any = self
        if row.pk is None:
            raise ValueError(
                f"after has a {type(row).__name__} that was not saved, so it has no id. Pass what enqueue() "
                "has returned."
            )
        read = row._state.db or router.db_for_write(type(row))
        return Link(read, row.pk, not row._state.adding, row)

    def join(self, timeout: float | timedelta | None = None) -> Self:
        """Wait until the job has finished, refresh it, and return it. Look at ``status`` then.

        Raise ``TimeoutError`` if it is not finished after ``timeout`` (seconds or a timedelta; None: wait
        forever); it names the last error, if an attempt has failed. Raise ``Job.DoesNotExist`` if it was not
        committed or is no longer kept, and ``TransactionManagementError`` in a transaction of its database.
        """
        waiting = _Wait(self, timeout)
        while not waiting.is_finished():
            with waiting.watched() as future:
                while not future.done() and waiting.left:
                    wait([future], min(SLICE, waiting.left))
        return self

    async def ajoin(self, timeout: float | timedelta | None = None) -> Self:
        """Like ``join()``, for async code. It takes no thread while it waits."""
        waiting = _Wait(self, timeout)
        while not await sync_to_async(waiting.is_finished)():
            with waiting.watched() as future, suppress(TimeoutError):
                await asyncio.wait_for(asyncio.wrap_future(future), min(waiting.left, 86400.0))
        return self


class _Wait:
    """One wait for a job."""

    def __init__(self, job: Any, timeout: float | timedelta | None) -> None:
        self._seconds = None if timeout is None else duration("join(timeout=...)", timeout)
        self._until = float("inf") if self._seconds is None else monotonic() + self._seconds
        self._job = job
        self._has_looked = False
        if job._state.adding:
            raise ValueError(
                f"{_name(job)} is not in a database, so it will never finish. dummy_jobs() and DummyBackend "
                "keep jobs in memory and run none. To run it in a test, use immediate_jobs() or run_jobs()."
            )
        if hasattr(job, "_running"):
            raise ValueError(f"{_name(job)} is the job that is running here, and it cannot wait for itself.")

    @cached_property
    def _alias(self) -> str:
        """Its database. A replica may be behind, and say how the job has ended before it was retried."""
        return write_alias(self._job)

    @property
    def left(self) -> float:
        """How many seconds the wait may still last."""
        return max(0.0, self._until - monotonic())

    @contextmanager
    def watched(self) -> Iterator[Future[None]]:
        """Yield a Future that is done when the job is not live. Raise what the thread could not do."""
        future = watch(self._alias, self._job.pk)
        try:
            yield future
        finally:
            future.cancel()
        if not future.cancelled():
            future.result()

    def is_finished(self) -> bool:
        """Read the job, and return whether it has finished. Raise ``TimeoutError`` if it should have.

        A job that has left the live leaf may be live again, because a user has retried it.
        """
        is_last = self._has_looked and not self.left
        lost, in_test = None, False
        try:
            in_test = _check_transaction(connections[self._alias], self._job)
            self._read()
        except (OperationalError, InterfaceError) as error:
            connection = connections[self._alias]
            connection.close_if_unusable_or_obsolete()
            if not self._has_looked or connection.connection is not None:
                raise
            lost = error  # the connection has ended; the poller connects again, and then this does, too
        self._has_looked = True
        if lost is None and self._job.is_finished:
            return True
        if in_test:
            raise TransactionManagementError(
                f"{_name(self._job)} is {self._job.status}, and no worker can see it: this test is one "
                "transaction. Call run_jobs() of django_pgqueue.testing before join(), or use "
                "immediate_jobs(). A test with a real worker is a TransactionTestCase."
            )
        if is_last or self._seconds == 0:
            raise TimeoutError(self._timed_out(lost)) from lost
        return False

    def _read(self) -> None:
        columns = [field.attname for field in self._job._meta.concrete_fields]  # also deferred ones
        try:
            self._job.refresh_from_db(using=self._alias, fields=columns)
        except ObjectDoesNotExist:
            kind = "Batch" if hasattr(self._job, "is_batch") else "Job"
            raise type(self._job).DoesNotExist(
                f"{kind} {self._job.pk} is not in the database {self._alias!r}. Either the "
                "transaction that made it has not committed or was rolled back, or it is finished and no "
                "longer kept: see RETENTION, and the retention of its Queue."
            ) from None

    def _timed_out(self, lost: Exception | None) -> str:
        job = self._job
        state = f"it is {job.status}"
        if lost is not None:
            state = "its database cannot be reached"
        elif job.status in ("pending", "retry") and job.run_after > server_now(self._alias):
            state += f" until {job.run_after.isoformat(sep=' ', timespec='seconds')}"
        why = getattr(job, "waiting_reason", "")  # which a batch has not
        reason = f" ({why})" if why and lost is None else ""
        error = "" if lost else _last_error(job)
        return f"{_name(job)} is not finished after {self._seconds:g} s: {state}{reason}.{error}"


def _check_transaction(connection: BaseDatabaseWrapper, job: Any) -> bool:
    """Refuse a transaction of the code. Return whether there is one of a ``TestCase``.

    A job of this transaction would never run, and a snapshot of a stricter isolation would never change.
    """
    blocks: list[Any] = connection.atomic_blocks
    if all(block._from_testcase for block in blocks) and (blocks or connection.get_autocommit()):
        return bool(blocks)
    raise TransactionManagementError(
        f"{_name(job)} cannot be waited for in a transaction of its database {connection.alias!r}: a worker "
        "sees a job only after the commit. Call join() after the atomic() block. In a view with "
        "ATOMIC_REQUESTS, return the id of the job, and let the browser ask again."
    )


def _name(job: Any) -> str:
    if hasattr(job, "is_batch"):
        return f"Batch {job}"
    path = "" if "task_path" in job.get_deferred_fields() else f" ({job.task_path})"
    return f"Job {job.pk}{path}"


def _last_error(job: Any) -> str:
    """Return a sentence about the last attempt that has failed; "" if none has, and for a batch."""
    if not (errors := getattr(job, "errors", [])):
        return ""
    name, text = errors[-1].get("class", "").rpartition(".")[2], errors[-1].get("message", "")
    shown = Truncator(redact_text(text, job.task_path)).chars(_MOST_OF_ERROR)
    return f" The error of attempt {errors[-1].get('attempt', len(errors))}: {name}: {shown}"


_pollers: dict[str, Poller] = {}
# After a fork the threads belong to the parent, as do their connections and the locks.
os.register_at_fork(after_in_child=_pollers.clear)


def watch(alias: str, job: int) -> Future[None]:
    """Return a Future that is done when the job is not live or does not exist. To stop waiting, cancel it."""
    return _pollers.setdefault(alias, Poller(alias)).watch(job)


class _Waiter:
    """A job that a caller waits for."""

    def __init__(self, job: int) -> None:
        self.job = job
        self.future: Future[None] = Future()
        self.pause = FIRST_PAUSE
        self.due = monotonic() + FIRST_PAUSE

    def answer(self, error: Exception | None = None) -> None:
        """Let its caller go on, or raise the error there."""
        if not self.future.set_running_or_notify_cancel():
            return
        if error is None:
            self.future.set_result(None)
        else:
            self.future.set_exception(error)


class Poller:
    """Looks at the jobs of one database."""

    def __init__(self, alias: str) -> None:
        self._alias = alias
        self._changed = Condition()
        self._waiters: list[_Waiter] = []
        self._thread: Thread | None = None
        self._next_look = float("inf")
        self._session: Session | None = None
        self._retry_pause = 0.0

    def watch(self, job: int) -> Future[None]:
        """See the function ``watch``."""
        waiter = _Waiter(job)
        waiter.future.add_done_callback(self._wake)
        with self._changed:
            if self._thread is None or not self._thread.is_alive():
                thread = Thread(target=self._run, name=f"pgqueue join {self._alias}", daemon=True)
                thread.start()  # it cannot do anything before this block ends
                self._thread = thread
            self._waiters.append(waiter)
            if waiter.due < self._next_look:
                self._changed.notify()
        return waiter.future

    def _wake(self, _: Future[None]) -> None:
        with self._changed:
            self._changed.notify()

    def _run(self) -> None:
        while due := self._wait_for_due():
            self._look(due)

    def _wait_for_due(self) -> list[_Waiter]:
        """Return those to look at, after a wait; an empty list if the thread shall end. Waiters who are
        due soon, or have just come, are looked at with the due ones, so that later they share statements.
        """
        with self._changed:
            while True:
                self._waiters = [waiter for waiter in self._waiters if not waiter.future.done()]
                self._next_look = min((waiter.due for waiter in self._waiters), default=float("inf"))
                now = monotonic()
                if self._next_look <= now:
                    return [
                        each for each in self._waiters if each.due - max(each.pause / 2, FIRST_PAUSE) <= now
                    ]
                if self._waiters:
                    self._changed.wait(self._next_look - now)
                elif not self._changed.wait_for(lambda: self._waiters, 0 if is_test() else LINGER):
                    # Race: a caller begins to wait now, so this is in the block: either the thread sees
                    # that waiter, or the waiter starts another thread, which opens its own session.
                    self._close()
                    self._thread = None
                    return []

    def _look(self, waiters: list[_Waiter]) -> None:
        try:
            if self._session is None:
                self._session = self._open()
            jobs = sorted({waiter.job for waiter in waiters})
            live = {job for (job,) in self._session.rows(LIVE_SQL, (jobs, jobs))}
        except LOST_CONNECTION as error:  # waiters give up when their own timeout has passed
            self._close()
            if not self._retry_pause:
                logger.warning("waiting for jobs in the database %r: %s", self._alias, str(error).strip())
            self._retry_pause = min(2 * self._retry_pause or 0.1, 2.0)
            for waiter in waiters:
                waiter.due = monotonic() + self._retry_pause
            return
        except Exception as error:  # a missing table, a missing right: waiting would not help
            self._close()
            for waiter in waiters:
                waiter.answer(error)
            return
        self._retry_pause = 0.0
        over = [waiter for waiter in waiters if waiter.job not in live]
        for waiter in waiters:
            waiter.pause = min(2 * waiter.pause, LONGEST_PAUSE)
            waiter.due = monotonic() + waiter.pause
        if is_test() and len(over) == len(self._waiters):
            self._close()
        for waiter in over:
            waiter.answer()

    def _open(self) -> Session:
        session = connect(self._alias, name="pgqueue join", standby=True)
        if not session.pooled:
            # How many jobs there are, and how many of them are waited for, changes all the time.
            session.connection.execute("SET plan_cache_mode TO force_custom_plan")
        return session

    def _close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()
