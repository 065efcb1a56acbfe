"""Turn what a task did into the outcome that is reported: done, again later, failed, cancelled."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from ... import conf
from ...encoding import encode_result
from ...exceptions import CancelJob, EventTimeout, RetryLater, Snooze, StepError, Suspended, WorkerLost
from ...jobs.finish import Kind, Outcome
from ...postgres.clock import known
from ...tasks.options import CENTURY
from ...tasks.retry import delay_before_retry, exponential, leaves, should_retry
from .errors import describe, error_entry, fingerprint, step_of, user_frames

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...compat import TaskResult
    from ...jobs.claim import Claimed
    from ...jobs.progress import Progress
    from .errors import Failure
    from .running_job import RunningJob

REASON_LIMIT = 500

#: What a task raises to control its own job. If a group contains nothing else, the first kind in this order
#: decides: what ends the job, what counts an attempt, what may go on before its time, and what only waits.
_CONTROL = (CancelJob, asyncio.CancelledError, RetryLater, Suspended, Snooze)


class Result(NamedTuple):
    """The result of one claimed row."""

    row: Claimed
    outcome: Outcome
    ran: float = 0.0  # seconds for which it occupied a slot; Outcome.ran is the task's own part of them
    reported: bool = False  # whether the row has the outcome already
    failure: Failure | None = None  # the exception to log with it
    progress: Progress | None = None  # what the job has last told; only for jobs that run inline


class BadCall(Exception):
    """The task cannot be called with the arguments of the job, and a retry would not help."""


class BadResult(Exception):
    """The task did its work but returned a value that cannot be stored. A retry would do the work twice."""


def succeeded(running: RunningJob, value: Any) -> Outcome:
    """Return the outcome of a task that returned. Raises ``BadResult`` if the result cannot be stored."""
    row = running.row
    ran = running.ran
    if running.suspended is not None:
        raise StepError(
            f"The job waits for {running.suspended.name!r}, but its task went on and returned. "
            "Let the exception Suspended pass."
        )
    if running.has_steps:
        running.warn_of_unused_steps()
    if running.told is not None:
        # If the transaction of an atomic task is tried again, that tells nothing: under REPEATABLE READ, each
        # change of the row of its progress would make it fail once more.
        running.told.end("done")
    if value is None and running.log is None:
        return Outcome(row.id, row.lease, started=running.started, ran=ran)
    try:
        result = None if value is None else encode_result(value, conf.current().max_json_bytes)
    except BaseException as error:  # usually InvalidJSON, but encoding calls methods of the value
        raise BadResult from error
    log = running.logged()
    return Outcome(row.id, row.lease, result=result, started=running.started, ran=ran, log=log)


def unsuccessful(running: RunningJob, error: BaseException, backoffs: Backoffs) -> Outcome:
    """Return the outcome of a task that raised. If the attempt failed, set ``running.error`` to the cause."""
    ran = running.ran
    try:
        outcome = _unsuccessful(running, error, backoffs)
    except BaseException as second:  # a broken exception must not make the job run forever
        outcome = _failed(running, second)
    if running.told is not None:
        running.told.end(outcome.kind)
    return outcome._replace(ran=ran, log=running.logged())


def _unsuccessful(running: RunningJob, error: BaseException, backoffs: Backoffs) -> Outcome:
    row = running.row
    if isinstance(error, (BadCall, BadResult)):
        assert error.__cause__ is not None
        return _failed(running, error.__cause__)  # the real cause; the wrapper only prevents a retry
    found = leaves(error)
    control = [each for each in found if _is_control(running, each)]
    if len(control) < len(found):  # an ordinary error, whatever was raised beside it
        return _failed(running, error, _delay(running, error, backoffs))
    deciding = next(each for kind in _CONTROL for each in control if isinstance(each, kind))
    if isinstance(deciding, CancelJob):
        reason = deciding.reason if isinstance(deciding.reason, str) else describe(deciding)
        return Outcome(row.id, row.lease, "cancelled", started=running.started, reason=_reason(reason))
    if isinstance(deciding, asyncio.CancelledError):
        return Outcome(row.id, row.lease, "cancelled", started=running.started, reason="asked to stop")
    if isinstance(deciding, Suspended):
        kind: Kind = "wait" if deciding.kind == "event" else "snooze"
        reason = _reason(str(deciding))
        return Outcome(
            row.id, row.lease, kind, delay=deciding.seconds, started=running.started, reason=reason
        )
    if isinstance(deciding, Snooze):
        wait = max(_wait(each, running.alias) for each in control if isinstance(each, Snooze))
        return Outcome(row.id, row.lease, "snooze", delay=wait, started=running.started)
    return _failed(running, error, _delay(running, error, backoffs))


def _is_control(running: RunningJob, error: BaseException) -> bool:
    if isinstance(error, asyncio.CancelledError):
        return running.asked_to_stop
    return isinstance(error, _CONTROL)


def expired(row: Claimed) -> Outcome:
    """Return the outcome of a job that expired before it started."""
    return Outcome(row.id, row.lease, "cancelled", reason=f"expired at {row.expires_at}")


def worker_failed(row: Claimed, error: BaseException | None = None) -> Outcome:
    """Return the outcome after a bug in the worker itself: the job is requeued with a delay."""
    reason = "the worker failed" if error is None else f"the worker failed: {error!r}"
    return Outcome(row.id, row.lease, "release", delay=30.0, reason=reason[:REASON_LIMIT])


def stopped(row: Claimed, worker: int) -> Outcome:
    """Return the outcome of a job that must not run twice and whose worker is stopped while it runs."""
    error = WorkerLost("Its worker was stopped while it ran. The task must not run twice.")
    entry = error_entry(error, worker, row.attempts, conf.current().max_error_bytes)
    return Outcome(row.id, row.lease, "failed", error=entry, reason=str(error))


def unknown_task(row: Claimed, worker: int, error: Exception, waited: float) -> Outcome:
    """Return the outcome of a job whose task this worker does not know. Another worker may know it, so the
    job waits up to UNKNOWN_TASK_TIMEOUT, and then fails.

    ``waited``: seconds since this process first claimed the job. For a job that has never run, the row is
    more accurate: ``started_at`` is the time when a worker first claimed it.
    """
    settings = conf.current()
    if row.attempts == 1:
        since = datetime.fromisoformat(row.last_attempted_at) - datetime.fromisoformat(row.started_at)
        waited = since.total_seconds()
    if waited < settings.unknown_task_timeout:
        delay = min(30.0, max(0.2, settings.unknown_task_timeout / 60))
        return Outcome(row.id, row.lease, "unknown", delay=delay, reason=_reason(describe(error)))
    return Outcome(
        row.id,
        row.lease,
        "failed",
        error=error_entry(error, worker, row.attempts, settings.max_error_bytes),
        fingerprint=fingerprint(error, row.task_path),
        reason=_reason(f"no worker knew the task: {describe(error)}"),
    )


def _failed(running: RunningJob, error: BaseException, delay: float | None = None) -> Outcome:
    """The attempt has failed. ``delay``: seconds until the next one; None if there is none."""
    row = running.row
    # From here on, the exception has only the frames of the task, without those of the worker. Otherwise
    # there would be a reference cycle: the worker's frames refer to the running job, and so to the exception.
    running.error = error.with_traceback(user_frames(error))
    return Outcome(
        row.id,
        row.lease,
        "failed" if delay is None else "retry",
        error=_entry(running, error),
        fingerprint=fingerprint(error, row.task_path),
        delay=delay,
        started=running.started,
    )


def _entry(running: RunningJob, error: BaseException) -> str:
    told = running.told
    more = {} if told is None else told.in_error()
    if step := step_of(error):
        more["step"] = step
    return error_entry(error, running.worker, running.row.attempts, conf.current().max_error_bytes, more)


def _delay(running: RunningJob, error: BaseException, backoffs: Backoffs) -> float | None:
    """Return the seconds until the next attempt; None if there is none. Each exception in a group decides as
    it would alone: one can prevent the retry, and otherwise the longest delay counts.
    """
    row, task, settings = running.row, running.task, conf.current()
    attempt = row.attempts - running.forgiven_attempts
    limit = row.max_attempts or task.max_attempts or settings.max_attempts
    if attempt >= limit:
        return None
    backoff = backoff_of(row.queue_name, backoffs)
    longest = 0.0
    for each in leaves(error):
        delay = _delay_after(running, each, error, attempt, backoff)
        if delay is None:
            return None
        longest = max(longest, delay)
    return longest


def _delay_after(
    running: RunningJob,
    error: BaseException,
    whole: BaseException,
    attempt: int,
    backoff: tuple[float, float],
) -> float | None:
    """Return the delay because of one exception. ``whole``: the group that it is in, or itself."""
    # A time that is over is over for every further attempt as well.
    if isinstance(error, (CancelJob, EventTimeout)):
        return None
    if isinstance(error, Suspended):
        return 0.0  # its time is recorded, and goes on meanwhile
    if isinstance(error, Snooze):
        return _wait(error, running.alias)
    if isinstance(error, asyncio.CancelledError):
        return None if running.asked_to_stop else exponential(attempt, *backoff)
    if isinstance(error, RetryLater):
        if error.delay is not None or error.until is not None:
            return _wait(error, running.alias)
    elif not should_retry(running.task, error, whole):
        return None
    return delay_before_retry(running.task, lambda: _result(running, whole), error, attempt, *backoff)


def _result(running: RunningJob, error: BaseException) -> TaskResult[..., Any]:
    """Return the failed attempt as it is passed to ``backoff`` callables."""
    return running.failed_result(_entry(running, error))


def _wait(error: RetryLater | Snooze, alias: str) -> float:
    """Return the seconds from now on. The clock of this machine may be wrong, and the server's decides."""
    wait = error.delay or 0.0
    if error.until is not None:
        wait = max(0.0, (error.until - known(alias)).total_seconds())
    return min(wait, CENTURY.total_seconds())


def _reason(text: str) -> str:
    clean = text.replace("\0", "\\x00").encode("utf-8", "backslashreplace").decode("utf-8")
    return clean if len(clean) <= REASON_LIMIT else clean[: REASON_LIMIT - 1] + "…"


# ----------------------------------------------------------------------------
# The backoffs of queues that have their own settings.

#: The base and ceiling of the backoff in seconds for each queue with its own settings; None where it sets
#: none.
Backoffs = dict[str, tuple[float | None, float | None]]


def backoffs(rows: Iterable[tuple[str, float | None, float | None]]) -> Backoffs:
    """Make the backoffs from their names, bases and ceilings."""
    return {name: (base, ceiling) for name, base, ceiling in rows}


def backoff_of(queue_name: str, backoffs: Backoffs) -> tuple[float, float]:
    """Return the base and ceiling of a queue's backoff, in seconds."""
    base, ceiling = backoffs.get(queue_name, (None, None))
    settings = conf.current()
    return (
        settings.backoff_base if base is None else base,
        settings.backoff_ceiling if ceiling is None else ceiling,
    )
