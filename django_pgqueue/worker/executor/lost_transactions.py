"""What an error of the database says about the transaction of an atomic task: whether its lease is lost,
whether it may be tried again at once, and whether it was lost together with its connection.

A transaction that is lost with its connection, because the server restarted or an administrator ended the
session, is no failure of the task: nothing of it is there, so the job runs again, and the attempt does not
count. It is not known whether a lost COMMIT was done. If it was, the job has finished, and this report is
refused. The same applies to a transaction that the server could not write because its disk is full, and to
one whose last statement, with which the worker writes the end of the job, was cancelled by a timeout: the
session has the timeouts of its user, and another session may hold a lock on the row of the job.

A task may be the reason itself, with a query that takes the server down or fills its disk. So each process
gives a job only so many attempts back, and after that the attempts count.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from weakref import ref

import psycopg
from django.db import connections
from django.db.transaction import TransactionManagementError
from django.db.utils import InterfaceError, InternalError, OperationalError
from psycopg.pq import TransactionStatus

from ...formatting import get_logger
from ...jobs.finish import Outcome
from ...tasks.retry import exponential, leaves

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from weakref import ReferenceType

    from django.db.backends.base.base import BaseDatabaseWrapper

    from .running_job import RunningJob

logger = get_logger(__name__)

MOST = 5
"""Attempts that a process gives back to a job."""
DELAYS = (1.0, 30.0)
"""Seconds until the next run, at first and at most."""
_REMEMBERED = 10_000  # jobs; there is a limit because they may end in other workers
_REASON = "The connection to the database was lost, and with it the transaction of the job."
_CANCELLED_REASON = "The end of the job could not be written in time, and its transaction was rolled back."
_FULL_REASON = "The disk of the database was full, so the transaction of the job was rolled back."

_LOST_LEASES = {"23Q01", "23Q02", "23Q03"}
_SERIALIZATION_FAILURES = {"40001", "40P01"}
#: The session was ended by an administrator or by a crash, or the server starts or has no free connection.
#: All of class 08 is about the connection: pgbouncer says 08P01 when its own session has crashed. Without a
#: code, the connection broke, or there was none.
_LOST_CONNECTIONS = ("57P01", "57P02", "57P03", "53300", "08")
_DISK_FULL = "53100"
#: A lock timeout, and a statement timeout or a request to cancel.
_CANCELLED = {"55P03", "57014"}


class LostTransactions:
    """The attempts that one process has given back. Used by many threads at the same time."""

    def __init__(self, alias: str) -> None:
        self._alias = alias
        self._given_back: dict[int, int] = {}

    def outcome(self, running: RunningJob, error: BaseException) -> Outcome | None:
        """Return the outcome of a job whose transaction was lost with its connection, or because the disk of
        the server is full; None if it was not, or if the attempt counts nevertheless.

        It counts for a job that must not run twice, and for one that runs isolated, whose process is new each
        time and remembers nothing.
        """
        row = running.row
        on_lost = row.on_lost or running.task.on_lost
        if on_lost == "fail" or row.crash_count:
            return None
        reasons = [_reason(self._alias, running, each) for each in leaves(error)]
        if None in reasons:  # an error of the task is not lost because its transaction is
            return None
        times = self._given_back.get(row.id, 0) + 1
        if times > MOST:
            return None
        if len(self._given_back) >= _REMEMBERED:
            self._given_back.clear()
        self._given_back[row.id] = times
        why = str(error).partition("\n")[0]
        logger.warning("job %s is requeued, because its transaction was lost: %s", row.id, why)
        if running.told is not None:
            running.told.end("release")
        return Outcome(row.id, row.lease, "release", delay=exponential(times, *DELAYS), reason=reasons[0])


def is_lost_lease(error: Exception) -> bool:
    """Return whether the finish was refused, because the job no longer belongs to this worker."""
    return _code(error) in _LOST_LEASES


def is_serialization_failure(error: BaseException) -> bool:
    """Return whether the transaction failed because of another one, and may succeed now."""
    return all(
        isinstance(each, OperationalError) and _code(each) in _SERIALIZATION_FAILURES
        for each in leaves(error)
    )


@contextmanager
def one_transaction(alias: str) -> Iterator[None]:
    """Refuse each statement after the transaction of an atomic task has ended, also the last one, with which
    the worker writes the end of the job: PostgreSQL would begin another transaction for it, without the work
    of the task.

    The state is known without a query. What a task sends with psycopg alone is seen at the next statement.
    """
    connection = connections[alias]
    has_begun = has_ended = False

    def look(execute: Callable[..., Any], sql: Any, params: Any, many: bool, context: Any) -> Any:
        nonlocal has_begun, has_ended
        has_ended = has_ended or (has_begun and _is_idle(connection))
        if not has_ended:
            answer = execute(sql, params, many, context)
            has_begun = True
            has_ended = _is_idle(connection)
        if has_ended:
            raise TransactionManagementError(
                "A task with atomic=True has ended its transaction, with a COMMIT or ROLLBACK of its own. "
                "Raise an exception to undo its work, and use transaction.atomic() to undo a part of it."
            )
        return answer

    connection.execute_wrappers.append(look)
    try:
        yield
    finally:
        # Not the last one, as execute_wrapper() does: the task may have left some.
        if look in connection.execute_wrappers:
            connection.execute_wrappers.remove(look)


def _is_idle(connection: BaseDatabaseWrapper) -> bool:
    raw: Any = connection.connection
    return raw is not None and raw.pgconn.transaction_status == TransactionStatus.IDLE


def _reason(alias: str, running: RunningJob, error: BaseException) -> str | None:
    """Return why the transaction is lost; None if it is not, or if the task is the reason.

    The disk may be that of another database, since the error does not say which one it is about.
    """
    # The FATAL of a pooler or a server may come together with the answer to a COMMIT, which psycopg refuses
    # with an InternalError that has no code.
    if not isinstance(error, (OperationalError, InterfaceError, InternalError)):
        return None
    if not isinstance(error.__cause__, psycopg.Error):
        return None
    code = _code(error)
    if code == _DISK_FULL:
        return _FULL_REASON
    if code in _CANCELLED and running.is_finishing:
        return _CANCELLED_REASON
    return _REASON if _is_lost(alias, running.session, code) else None


def _is_lost(alias: str, session: ReferenceType[Any] | None, code: str | None) -> bool:
    """Return whether the task failed because its connection broke or could not be made.

    The error alone does not show this, since it may be about another database. Django connects again at the
    end of a transaction whose connection has broken, so the session is another one then.
    """
    may_be = code is None or code.startswith(_LOST_CONNECTIONS)
    return may_be and (session is None or session_of(alias) != session)


def session_of(alias: str) -> ReferenceType[Any] | None:
    """Return what stands for the session behind Django's connection; None if there is no connection.

    Not its number: after a restart of the server, the next session may have the same one.
    """
    raw: Any = connections[alias].connection
    return None if raw is None or raw.closed else ref(raw)


def _code(error: BaseException) -> str | None:
    return getattr(error.__cause__, "sqlstate", None)
