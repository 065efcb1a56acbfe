"""``job.join()``: wait until a job has finished.

The job is read on the caller's connection before and after the wait. In between, ``poller`` looks for all
waiters of the process.
"""

from __future__ import annotations

import asyncio
from concurrent import futures
from datetime import timedelta
from functools import cached_property
from time import monotonic
from typing import TYPE_CHECKING, Any

from asgiref.sync import sync_to_async
from django.core.exceptions import ObjectDoesNotExist
from django.db import InterfaceError, OperationalError, connections, router
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.transaction import TransactionManagementError

from ..exceptions import duration
from ..postgres.aliases import write_alias
from ..postgres.clock import server_now
from ..tasks.link import Link
from .poller import watch

if TYPE_CHECKING:
    from typing import Self


#: The exception of a task's timeout reaches a thread between two instructions, so no wait is longer.
SLICE = 1.0


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

        Raise ``TimeoutError`` if it is not over after ``timeout`` (seconds or a timedelta; None: wait
        forever), ``Job.DoesNotExist`` if it was not committed or is no longer kept, and
        ``TransactionManagementError`` in a transaction of its database.
        """
        wait = _Wait(self, timeout)
        while not wait.is_finished():
            future = wait.watch()
            try:
                while not future.done() and not wait.has_timed_out:
                    futures.wait([future], min(SLICE, wait.left))
            finally:
                future.cancel()
            wait.check(future)
        return self

    async def ajoin(self, timeout: float | timedelta | None = None) -> Self:
        """Like ``join()``, for async code. It takes no thread while it waits."""
        wait = _Wait(self, timeout)
        while not await sync_to_async(wait.is_finished)():
            future = wait.watch()
            ours = asyncio.wrap_future(future)
            try:
                await asyncio.wait([ours], timeout=min(wait.left, 86400.0))
            finally:
                if not ours.cancel() and not ours.cancelled():
                    ours.exception()  # read here, so that asyncio does not log that nobody has read it
                future.cancel()
            wait.check(future)
        return self


class _Wait:
    """One wait for a job."""

    def __init__(self, job: Any, timeout: float | timedelta | None) -> None:
        self._seconds = None if timeout is None else duration("join(timeout=...)", timeout)
        self._until = None if self._seconds is None else monotonic() + self._seconds
        self._job = job
        self._has_looked = False
        _check_is_row(job)

    @cached_property
    def _alias(self) -> str:
        """Its database. A replica may be behind, and say how the job has ended before it was retried."""
        return write_alias(self._job)

    @property
    def left(self) -> float:
        """How many seconds the wait may still last."""
        return float("inf") if self._until is None else max(0.0, self._until - monotonic())

    @property
    def has_timed_out(self) -> bool:
        """Whether the timeout is over."""
        return not self.left

    def watch(self) -> futures.Future[None]:
        """Return a Future that has a result when the job is not live any more."""
        return watch(self._alias, self._job.pk)

    def check(self, future: futures.Future[None]) -> None:
        """Raise what the poller could not do."""
        if not future.cancelled() and (error := future.exception()):
            raise error

    def is_finished(self) -> bool:
        """Read the job, and return whether it is over. Raise ``TimeoutError`` if it is not and it must be.

        A job that has left the live leaf may be live again, because a user has retried it.
        """
        is_last = self._has_looked and self.has_timed_out
        lost, in_test = None, False
        try:
            in_test = _check_transaction(connections[self._alias], self._job)
            self._read()
        except (OperationalError, InterfaceError) as error:
            if not self._has_looked or not _has_lost(connections[self._alias]):
                raise
            lost = error  # the poller connects again, and then this does, too
        self._has_looked = True
        if lost is None and self._job.is_finished:
            return True
        if in_test:
            raise TransactionManagementError(_IN_TEST.format(job=_name(self._job), status=self._job.status))
        if is_last or self._seconds == 0:
            raise TimeoutError(self._timed_out(lost)) from lost
        return False

    def _read(self) -> None:
        columns = [field.attname for field in self._job._meta.concrete_fields]  # also those that are deferred
        try:
            self._job.refresh_from_db(using=self._alias, fields=columns)
        except ObjectDoesNotExist:
            raise type(self._job).DoesNotExist(
                f"{_kind(self._job)} {self._job.pk} is not in the database {self._alias!r}. Either the "
                "transaction that made it has not committed or was rolled back, or it is over and no longer "
                "kept: see RETENTION, and the retention of its Queue."
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
        return f"{_name(job)} is not over after {self._seconds:g} s: {state}{reason}."


_IN_TEST = (
    "{job} is {status}, and no worker can see it: this test is one transaction. Call run_jobs() of "
    "django_pgqueue.testing before join(), or use immediate_jobs(). A test with a real worker is a "
    "TransactionTestCase."
)


def _check_is_row(job: Any) -> None:
    if job._state.adding:
        raise ValueError(
            f"{_name(job)} is not in a database, so it will never be over. dummy_jobs() and DummyBackend "
            "keep jobs in memory and run none. To run it in a test, use immediate_jobs() or run_jobs()."
        )
    if hasattr(job, "_running"):
        raise ValueError(f"{_name(job)} is the job that is running here, and it cannot wait for itself.")


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


def _has_lost(connection: BaseDatabaseWrapper) -> bool:
    """Return whether an error has ended the connection. If so, the next query connects again."""
    connection.close_if_unusable_or_obsolete()
    return connection.connection is None


def _kind(job: Any) -> str:
    return "Batch" if hasattr(job, "is_batch") else "Job"


def _name(job: Any) -> str:
    if hasattr(job, "is_batch"):
        return f"Batch {job}"
    if "task_path" in job.get_deferred_fields():
        return f"Job {job.pk}"
    return f"Job {job.pk} ({job.task_path})"
