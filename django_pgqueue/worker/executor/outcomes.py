"""Turn what a task did into the outcome that is reported: done, again later, failed, cancelled.

An atomic task whose transaction was lost with its connection has not failed: nothing of it is there, so the
job runs again, and the attempt does not count. If a lost COMMIT was done, the job has finished, and this
report is refused. The same applies to a transaction that the server could not write because its disk is full,
and to one whose last statement, with which the worker writes the end of the job, was cancelled by a timeout:
another session may hold a lock on the row of the job. A task may be the reason itself, with a query that
takes the server down, so each process gives a job only so many attempts back.
"""

from __future__ import annotations

import asyncio
from datetime import datetime
from time import monotonic
from typing import Any, NamedTuple
from weakref import ReferenceType, ref

import psycopg
from django.db import connections
from django.db.utils import IntegrityError, InterfaceError, InternalError, OperationalError

from ... import conf
from ...encoding import encode_result
from ...exceptions import CancelJob, EventTimeout, RetryLater, Snooze, Suspended, TaskTimeout, WorkerLost
from ...formatting import cut, get_logger, storable
from ...jobs.claim import Claimed
from ...jobs.finish import Kind, Outcome
from ...postgres.clock import known
from ...tasks.options import CENTURY
from ...tasks.progress import Progress
from ...tasks.retry import delay_before_retry, exponential, leaves, should_retry
from .connections import left_open
from .errors import describe, error_entry, fingerprint, note_step, step_of, user_frames
from .running_job import RunningJob
from .task_signals import Announcer

logger = get_logger(__name__)

REASON_LIMIT = 500
MOST_GIVEN_BACK = 5  # attempts that a process gives back to a job whose transaction was lost
DELAYS = (1.0, 30.0)  # seconds until such a job runs again, at first and at most
_REMEMBERED = 100_000  # jobs; there is a limit because they may end in other workers

#: What a task raises to control its own job. If a group contains nothing else, the first kind in this order
#: decides: what ends the job, what counts an attempt, what may go on before its time, and what only waits.
_CONTROL = (CancelJob, asyncio.CancelledError, RetryLater, Suspended, Snooze)

_GONE = "23Q01"
_LOST_LEASES = {_GONE, "23Q02", "23Q03"}
_SERIALIZATION_FAILURES = {"40001", "40P01"}
#: The session was ended by an administrator or by a crash, or the server starts or has no free connection.
#: All of class 08 is about the connection: pgbouncer says 08P01 when its own session has crashed.
_LOST_CONNECTIONS = ("57P01", "57P02", "57P03", "53300", "08")
_DISK_FULL = "53100"
_CANCELLED = {"55P03", "57014"}  # a lock timeout, and a statement timeout or a request to cancel
CONNECTION_LOST = "The connection to the database was lost, and with it the transaction of the job."
_LEASE_LOST = "The lease of the job was lost, so its transaction was rolled back."
_NOT_WRITTEN = "The end of the job could not be written in time, and its transaction was rolled back."
_NO_SPACE = "The disk of the database was full, so the transaction of the job was rolled back."

#: The base and ceiling of the backoff in seconds for each queue with its own settings, or None.
Backoffs = dict[str, tuple[float | None, float | None]]


class Result(NamedTuple):
    """The result of one claimed row."""

    row: Claimed
    outcome: Outcome
    ran: float = 0.0  # seconds for which it occupied a slot; Outcome.ran is the task's own part of them
    reported: bool = False  # whether the row has the outcome already
    # Why the attempt failed. The exception refers to the frames of the task, and so to the values of its
    # variables. To free them soon, nothing else refers to it until the line is logged.
    error: BaseException | None = None
    scope: Any = None  # of Sentry, in which the job ran, if it failed
    progress: Progress | None = None  # what the job has last reported; only for jobs that run inline


class BadCall(Exception):
    """The task cannot be called with the arguments of the job, and a retry would not help."""


class BadResult(Exception):
    """The task did its work but returned a value that cannot be stored. A retry would do the work twice."""


def worker_failed(row: Claimed, error: BaseException | None = None) -> Outcome:
    """Return the outcome after a bug in the worker itself: the job is requeued with a delay."""
    reason = "the worker failed" if error is None else f"the worker failed: {error!r}"
    return Outcome(row.id, row.lease, "release", delay=30.0, reason=reason[:REASON_LIMIT])


def stopped(row: Claimed, worker: int) -> Outcome:
    """Return the outcome of a job that must not run twice and whose worker is stopped while it runs."""
    error = WorkerLost("Its worker was stopped while it ran. The task must not run twice.")
    entry = error_entry(error, worker, row.attempts)
    return Outcome(row.id, row.lease, "failed", error=entry, reason=str(error))


def backoff_of(queue_name: str, backoffs: Backoffs) -> tuple[float, float]:
    """Return the base and ceiling of a queue's backoff, in seconds."""
    base, ceiling = backoffs.get(queue_name, (None, None))
    usual = conf.current().backoff_base, conf.current().backoff_ceiling
    return usual[0] if base is None else base, usual[1] if ceiling is None else ceiling


def is_serialization_failure(error: BaseException) -> bool:
    """Return whether the transaction failed because of another one, and may succeed now."""
    return all(
        isinstance(each, OperationalError) and _code(each) in _SERIALIZATION_FAILURES
        for each in leaves(error)
    )


def session_of(alias: str) -> ReferenceType[Any] | None:
    """Return what stands for the session behind Django's connection; None if there is no connection.

    Not its number: after a restart of the server, the next session may have the same one.
    """
    raw: Any = connections[alias].connection
    return None if raw is None or raw.closed else ref(raw)


class Outcomes:
    """Decides how the attempts of one worker process end. Used by many threads at the same time."""

    def __init__(self, alias: str, worker: int, announcer: Announcer) -> None:
        self.backoffs: Backoffs = {}
        self._alias = alias
        self._worker = worker
        self._announcer = announcer
        self._first_met: dict[int, float] = {}  # jobs with unknown tasks
        self._given_back: dict[int, int] = {}  # how many attempts, by job

    def unknown_task(self, row: Claimed, error: Exception) -> Outcome:
        """Return the outcome if this worker does not know the task: wait UNKNOWN_TASK_TIMEOUT, then fail."""
        settings = conf.current()
        if row.attempts == 1:  # the row knows when a worker first claimed it
            first, last = map(datetime.fromisoformat, (row.started_at, row.last_attempted_at))
            waited = (last - first).total_seconds()
        else:
            _forget_if_full(self._first_met)
            waited = monotonic() - self._first_met.setdefault(row.id, monotonic())
        if waited < settings.unknown_task_timeout:
            delay = min(30.0, max(0.2, settings.unknown_task_timeout / 60))
            return Outcome(row.id, row.lease, "unknown", delay=delay, reason=_reason(describe(error)))
        return Outcome(
            row.id, row.lease, "failed",
            error=error_entry(error, self._worker, row.attempts),
            fingerprint=fingerprint(error, row.task_path),
            reason=_reason(f"no worker knew the task: {describe(error)}"),
        )  # fmt: skip

    def succeeded(self, running: RunningJob, value: Any) -> Outcome:
        """Return the outcome of a task that returned. Raise ``BadResult`` if the result cannot be stored."""
        row, ran = running.row, running.ran
        if running.has_steps:
            running.steps.check_end()
        if running.reporting is not None:
            # If the transaction of an atomic task is tried again, that means nothing: under REPEATABLE READ,
            # each change of the row of its progress would make it fail once more.
            running.reporting.end("done")
        if value is None and running.log is None:
            return Outcome(row.id, row.lease, started=running.started, ran=ran)
        try:
            result = None if value is None else encode_result(value, conf.current().max_json_bytes)
        except BaseException as error:  # usually InvalidJSON, but encoding calls methods of the value
            raise BadResult from error
        log = running.logged()
        return Outcome(row.id, row.lease, result=result, started=running.started, ran=ran, log=log)

    def unsuccessful(self, running: RunningJob, error: BaseException) -> Outcome:
        """Return the outcome of a task that raised. Announce a failed attempt, and set ``running.error``."""
        if running.task.atomic and (lost := self._lost_transaction(running, error)) is not None:
            return lost
        outcome = self._ended(running, error)
        if outcome.error is not None:
            self._announcer.failed(running, outcome.error)
        return outcome

    def timed_out(self, running: RunningJob, error: TaskTimeout) -> Outcome:
        """Return the outcome of a job that kept running after its timeout, and was ended from outside."""
        note_step(error, running.progress.step)
        return self.unsuccessful(running, error)

    def tidied(self, running: RunningJob, outcome: Outcome, unsaved: list[str]) -> Outcome:
        """Return the outcome now that the thread is tidied up. A task that has returned is not done if it
        has left open the transactions in which it wrote to the databases ``unsaved``.
        """
        if not unsaved or outcome.kind != "done" or running.reported:
            return outcome
        return self.unsuccessful(running, left_open(unsaved))

    def _lost_transaction(self, running: RunningJob, error: BaseException) -> Outcome | None:
        """Return the outcome of an atomic task whose transaction was undone, if that is not its failure."""
        row, code = running.row, _code(error) if isinstance(error, IntegrityError) else None
        if is_lost := code in _LOST_LEASES:
            logger.warning("job %s lost its lease; its work was rolled back: %s", row.id, error)
        # An attempt counts for a job that must not run twice, and for one that runs isolated: its process is
        # new each time. And for a task that has deleted its own row: it is back after the rollback.
        counts = code == _GONE or (row.on_lost or running.task.on_lost) == "fail" or row.crash_count
        # Race: a process that goes on after it was stopped finds that its job waits again, loses its
        # connection, and claims the job again as one whose claim the server has lost. Otherwise, a report of
        # a job with a lost lease is refused.
        reasons = [_LEASE_LOST] if is_lost else [self._why_lost(running, each) for each in leaves(error)]
        times = self._given_back.get(row.id, 0) + 1
        if counts or None in reasons or times > MOST_GIVEN_BACK:  # an error of the task is its own failure
            return self._ended(running, error) if is_lost else None
        _forget_if_full(self._given_back)
        self._given_back[row.id] = times
        if not is_lost:
            why = str(error).partition("\n")[0]
            logger.warning("job %s is requeued, because its transaction was lost: %s", row.id, why)
        if running.reporting is not None:
            running.reporting.end("release")
        return Outcome(row.id, row.lease, "release", delay=exponential(times, *DELAYS), reason=reasons[0])

    def _why_lost(self, running: RunningJob, error: BaseException) -> str | None:
        """Return why the transaction is lost; None if it is not, or if the task is the reason."""
        # The FATAL of a pooler or a server may come together with the answer to a COMMIT, which psycopg
        # refuses with an InternalError that has no code.
        is_candidate = isinstance(error, (OperationalError, InterfaceError, InternalError))
        if not is_candidate or not isinstance(error.__cause__, psycopg.Error):
            return None
        code = _code(error)
        if code == _DISK_FULL:
            return _NO_SPACE
        if code in _CANCELLED and running.is_finishing:
            return _NOT_WRITTEN
        if code is not None and not code.startswith(_LOST_CONNECTIONS):
            return None
        # It may be about another database. Django connects again at the end of a transaction whose
        # connection has broken, so the session is another one then.
        is_lost = running.session is None or session_of(self._alias) != running.session
        return CONNECTION_LOST if is_lost else None

    def _ended(self, running: RunningJob, error: BaseException) -> Outcome:
        ran = running.ran
        try:
            outcome = self._controlled(running, error)
        except BaseException as second:  # a broken exception must not make the job run forever
            outcome = self._failed(running, second)
        if running.reporting is not None:
            running.reporting.end(outcome.kind)
        return outcome._replace(ran=ran, log=running.logged())

    def _controlled(self, running: RunningJob, error: BaseException) -> Outcome:
        """Return what the task has asked for, or else the outcome of a failed attempt."""
        if isinstance(error, (BadCall, BadResult)):
            assert error.__cause__ is not None
            return self._failed(running, error.__cause__)  # the real cause; the wrapper only prevents a retry
        found = leaves(error)
        is_asked = running.asked_to_stop  # otherwise a CancelledError is an error like any other
        control = [
            each for each in found
            if isinstance(each, _CONTROL) and (is_asked or not isinstance(each, asyncio.CancelledError))
        ]  # fmt: skip
        if len(control) < len(found):  # an ordinary error, whatever was raised beside it
            return self._failed(running, error, self._delay(running, error))
        deciding = next(each for kind in _CONTROL for each in control if isinstance(each, kind))
        ended = Outcome(running.row.id, running.row.lease, started=running.started)
        if isinstance(deciding, CancelJob):
            reason = deciding.reason if isinstance(deciding.reason, str) else describe(deciding)
            return ended._replace(kind="cancelled", reason=_reason(reason))
        if isinstance(deciding, asyncio.CancelledError):
            return ended._replace(kind="cancelled", reason="asked to stop")
        if isinstance(deciding, Suspended):
            kind: Kind = "wait" if deciding.kind == "event" else "snooze"
            return ended._replace(kind=kind, delay=deciding.seconds, reason=_reason(str(deciding)))
        if isinstance(deciding, Snooze):
            wait = max(_seconds_until(each, self._alias) for each in control if isinstance(each, Snooze))
            return ended._replace(kind="snooze", delay=wait)
        return self._failed(running, error, self._delay(running, error))

    def _failed(self, running: RunningJob, error: BaseException, delay: float | None = None) -> Outcome:
        """The attempt has failed. ``delay``: seconds until the next one; None if there is none."""
        row = running.row
        # The worker's frames refer to the running job, and so to the exception: a reference cycle.
        running.error = error.with_traceback(user_frames(error))
        return Outcome(
            row.id, row.lease, "failed" if delay is None else "retry", error=self._entry(running, error),
            fingerprint=fingerprint(error, row.task_path), delay=delay, started=running.started,
        )  # fmt: skip

    def _entry(self, running: RunningJob, error: BaseException) -> str:
        more: dict[str, Any] = {}
        if running.reporting is not None and running.reporting.last is not None:
            more["progress"] = running.reporting.last._asdict()
        if step := step_of(error):
            more["step"] = step
        return error_entry(error, running.worker, running.row.attempts, **more)

    def _delay(self, running: RunningJob, error: BaseException) -> float | None:
        """Return the seconds until the next attempt; None if there is none. Each exception in a group decides
        as it would alone: one can prevent the retry, and otherwise the longest delay counts.
        """
        row = running.row
        attempt = row.attempts - running.forgiven_attempts
        if attempt >= (row.max_attempts or running.task.max_attempts or conf.current().max_attempts):
            return None
        delays = [self._delay_after(running, each, error, attempt) for each in leaves(error)]
        return None if None in delays else max(filter(None, delays), default=0.0)

    def _delay_after(
        self, running: RunningJob, error: BaseException, whole: BaseException, attempt: int
    ) -> float | None:
        """Return the delay because of one exception. ``whole``: the group that it is in, or itself."""
        backoff = backoff_of(running.row.queue_name, self.backoffs)
        if isinstance(error, (CancelJob, EventTimeout)):
            return None  # a time that has passed has passed for every further attempt as well
        if isinstance(error, Suspended):
            return 0.0  # its time is recorded, and goes on meanwhile
        if isinstance(error, Snooze):
            return _seconds_until(error, self._alias)
        if isinstance(error, asyncio.CancelledError):
            return None if running.asked_to_stop else exponential(attempt, *backoff)
        if isinstance(error, RetryLater):
            if error.delay is not None or error.until is not None:
                return _seconds_until(error, self._alias)
        elif not should_retry(running.task, error, whole):
            return None
        return delay_before_retry(
            running.task, lambda: running.failed_result(self._entry(running, whole)), error, attempt, *backoff
        )


def _seconds_until(error: RetryLater | Snooze, alias: str) -> float:
    """The clock of this machine may be wrong, and the server's decides."""
    wait = error.delay or 0.0
    if error.until is not None:
        wait = max(0.0, (error.until - known(alias)).total_seconds())
    return min(wait, CENTURY.total_seconds())


def _reason(text: str) -> str:
    return cut(storable(text), REASON_LIMIT)


def _code(error: BaseException) -> str | None:
    return getattr(error.__cause__, "sqlstate", None)


def _forget_if_full(remembered: dict[int, Any]) -> None:
    if len(remembered) >= _REMEMBERED:
        remembered.clear()
