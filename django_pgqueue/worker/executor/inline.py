"""Run jobs on the calling thread and its own connections: for tests, and for a process with one thread.

What is missing is what needs another thread or process: timeouts, and the isolation of jobs that have
crashed. The connections are not tidied up, because they belong to the caller.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import copy_context
from time import monotonic
from typing import TYPE_CHECKING, Any

from asgiref.sync import async_to_sync
from django.db import connections
from psycopg.pq import TransactionStatus

from ..processes.started_jobs import StartedJobs
from .connections import has_written
from .outcomes import Result
from .runner import Runner, log_failed_callback
from .task_signals import Announcer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django.db.backends.base.base import BaseDatabaseWrapper

    from ...jobs.claim import Claimed
    from ...jobs.finish import Outcome
    from .running_job import RunningJob


class InlineRunner(Runner):
    """Runs one job at a time."""

    _enforces_timeouts = False

    def __init__(self, alias: str, worker: int) -> None:
        super().__init__(alias, worker, Announcer(), StartedJobs.private(1))

    def perform_here(self, row: Claimed) -> Result:
        """Run a claimed job, sync or async, and return its result. An error of the worker is raised."""
        ready = self._prepare(row)
        if isinstance(ready, Result):
            return ready
        ready.in_outer_transaction = is_open(self.alias)
        self._begin(ready)
        try:
            outcome = self._perform(ready)
        finally:
            self._end(ready)
            self._started_jobs.end(row.id)
        last = None if ready.told is None else ready.told.last
        return Result(row, outcome, monotonic() - ready.started, ready.reported, ready.take_failure(), last)

    def _perform(self, running: RunningJob) -> Outcome:
        try:
            with savepoints():
                copy_context().run(self._run_body, running)
        except BaseException as error:  # a callback raised it, or the transaction is broken
            if running.outcome is None:
                raise  # a bug of the worker
            if running.reported and not isinstance(error, BrokenTransaction):
                log_failed_callback(running)
                running.error = error  # so that a test sees it
            elif running.outcome.kind not in {"failed", "retry"} and not running.reported:
                running.outcome = self._failed(running, error)
        assert running.outcome is not None
        connection = connections[self.alias]
        if not connection.in_atomic_block and not connection.get_autocommit():
            if has_written(connection):
                running.outcome = self.tidied(running, running.outcome, [self.alias])
            # What the worker writes next is not part of the transaction that the task has left open.
            connection.rollback()
            connection.set_autocommit(True)
        return running.outcome

    def _hook_failed(self, running: RunningJob, error: BaseException) -> None:
        super()._hook_failed(running, error)
        running.error = error  # so that a test sees it

    def _run_body(self, running: RunningJob) -> None:
        with run_callbacks():
            if running.row.task_path in self._async_paths:
                # The ORM work of the coroutine comes back to this thread, and so to its connections.
                async_to_sync(self.run_async)(running)
            else:
                running.outcome = self._call(running)


# ----------------------------------------------------------------------------
# Run a task inside a transaction that belongs to other code, such as that of Django's ``TestCase``.
#
# A worker runs a task outside of transactions: each statement is committed at once, and so is each
# ``atomic`` block, which then runs its ``on_commit`` callbacks. In an open transaction, this comes as close
# as it can:
#
#     callbacks: those that the task has registered run at the end of the task. They are not left to the owner
#     of the transaction, which may never commit.
#
#     a statement that fails outside of an ``atomic`` block: it breaks the whole transaction. So there is a
#     savepoint before the task. If the task leaves the transaction broken, all that it wrote is undone.


class BrokenTransaction(Exception):
    """A task has handled an error of the database, but left the transaction broken."""

    def __init__(self) -> None:
        super().__init__(
            "The task has handled an error of the database outside of transaction.atomic(). A worker would "
            "go on, but here the task runs in an open transaction, such as that of a TestCase, which the "
            "error breaks. So all that the task has written was undone. Put the statement that may fail in "
            "transaction.atomic(), or use a TransactionTestCase."
        )


def is_open(alias: str) -> bool:
    """Return whether this thread is in a transaction of the database."""
    return connections[alias].in_atomic_block


@contextmanager
def savepoints() -> Iterator[None]:
    """Make a savepoint in each open transaction of this thread. Undo the block if it breaks one.

    If it does without raising, raise ``BrokenTransaction``.
    """
    made = [(connection, str(connection.savepoint())) for connection in _in_transactions()]
    places = {connection.alias: len(connection.run_on_commit) for connection, _ in made}
    was_broken = False
    try:
        yield
    finally:
        for connection, name in made:
            if _is_broken(connection):
                was_broken = True
                connection.needs_rollback = False
                connection.savepoint_rollback(name)
                del connection.run_on_commit[places[connection.alias] :]
            else:
                connection.savepoint_commit(name)
    if was_broken:
        raise BrokenTransaction


@contextmanager
def run_callbacks() -> Iterator[None]:
    """Run the ``on_commit`` callbacks that the block has registered, at its end, in their order."""
    places = {connection.alias: len(connection.run_on_commit) for connection in _in_transactions()}
    yield
    for alias, place in places.items():
        while registered := _callbacks(alias)[place:]:
            del _callbacks(alias)[place]
            registered[0][1]()


def _callbacks(alias: str) -> list[Any]:
    """Return the callbacks. Django makes a new list when a savepoint is rolled back."""
    found: list[Any] = connections[alias].run_on_commit
    return found


def _in_transactions() -> list[BaseDatabaseWrapper]:
    return [each for each in connections.all(initialized_only=True) if each.in_atomic_block]


def _is_broken(connection: BaseDatabaseWrapper) -> bool:
    pgconn = getattr(connection.connection, "pgconn", None)
    is_in_error = pgconn is not None and pgconn.transaction_status == TransactionStatus.INERROR
    return connection.needs_rollback or is_in_error
