"""Exceptions that a task raises to control its own job, and the errors of this package.

A wrongly declared task raises Django's own ``InvalidTask``. All exceptions here can be pickled.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.conf import settings
from django.utils import timezone


class PgQueueError(Exception):
    """The base class of the errors of this package. The first argument is the message."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class UnknownTask(PgQueueError, LookupError):
    """There is no task at this path. The cause, if there is one, is the failed import."""


class InvalidJSON(PgQueueError, TypeError, ValueError):
    """Arguments, metadata or a result cannot be stored as JSON in PostgreSQL, or are too large.

    This is both a TypeError and a ValueError, because ``json.dumps`` raises either.
    """


class InvalidKey(PgQueueError, ValueError):
    """The key of a call cannot be computed from its arguments, or cannot be stored. Nothing is enqueued."""


class WrongBackend(PgQueueError, TypeError):
    """A task was given to `enqueue` whose backend in TASKS does not belong to this package."""


class JobExists(PgQueueError):
    """There is another job with the unique key of the call, whose `on_conflict` is "raise".

    `job_id` is the id of that job.
    """

    def __init__(self, message: str, job_id: int) -> None:
        super().__init__(message, job_id)
        self.job_id = job_id


class ShardsFailed(PgQueueError):
    """Some shards did not take a change of `on_shards`, and the others have committed it. Repeat it.

    `done` has the results of the change, and `failed` why it failed, both by the alias of the shard.
    """

    def __init__(self, message: str, done: dict[str, Any], failed: dict[str, str]) -> None:
        super().__init__(message, done, failed)
        self.done, self.failed = done, failed


class JobControl(Exception):
    """The base class of exceptions that a task raises to control its own job."""


class _Later(JobControl):
    """An exception with which a job runs later: after a delay, or at a time."""

    def __init__(self, delay: float | timedelta | None = None, *, until: datetime | None = None) -> None:
        super().__init__(*(value for value in (delay, until) if value is not None))
        name = type(self).__name__
        if delay is not None and until is not None:
            raise TypeError(f"{name} takes a delay or until=..., not both.")
        self.delay = None if delay is None else duration(f"{name}(delay)", delay)
        """Seconds from now on."""
        self.until = None if until is None else moment(f"{name}(until=...)", until)

    def __str__(self) -> str:
        kind = "retry" if isinstance(self, RetryLater) else "snooze"
        if self.until is not None:
            return f"{kind} at {self.until}"
        return kind if self.delay is None else f"{kind} after {self.delay:g} s"

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), until=self.until), (self.delay,), self.__dict__


class RetryLater(_Later):
    """Raise this in a task to fail the attempt and retry the job.

    `delay`, in seconds or as a timedelta, or `until`, an aware datetime: when; without either, the backoff of
    the task decides. The attempt counts, and when no attempts are left, the job fails. ``raise RetryLater(60)
    from error`` keeps the cause in the job's errors.
    """


class Snooze(_Later):
    """Raise this in a task to run the job again after a `delay`, in seconds or as a timedelta, or at `until`,
    an aware datetime. It does not count as an attempt.
    """

    def __init__(self, delay: float | timedelta | None = None, *, until: datetime | None = None) -> None:
        super().__init__(delay, until=until)
        if delay is None and until is None:
            raise TypeError("Snooze takes a delay or until=...: when does the job run again?")


class CancelJob(JobControl):
    """Raise this in a task to end its job as cancelled, with a `reason` and without a retry."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason


class WorkerLost(PgQueueError):
    """The worker died while it ran a job that must not run twice (`on_lost="fail"`).

    It is never raised. Recovery writes it into the job's errors, where `TaskError.exception_class` finds it.
    """


class TooManyCrashes(PgQueueError):
    """Its process died `CRASH_LIMIT` times while the job ran. Like `WorkerLost`, it is never raised."""


class TaskTimeout(PgQueueError):
    """The task has run longer than its `timeout`. It is raised in the task, wherever that is at the moment.

    The attempt has failed and is retried like any other failure.
    """

    def __init__(self, message: str = "the task has run longer than its timeout") -> None:
        super().__init__(message)


def duration(where: str, value: timedelta | float) -> float:
    """Return `value` in seconds. Raise TypeError or ValueError unless it is a duration of up to 100 years."""
    if isinstance(value, timedelta):
        value = value.total_seconds()
    elif isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{where} takes seconds or a timedelta, not {value!r}.")
    if not 0 <= value <= 36525 * 86400:  # refuses NaN, too
        raise ValueError(f"{where} takes a duration from 0 to 100 years, not {value!r} seconds.")
    return float(value)


def moment(where: str, value: datetime) -> datetime:
    """Return a time with its time zone. Raise TypeError if it has none, or is no time.

    Without ``USE_TZ``, times have none: they are in TIME_ZONE, as in Django. As PostgreSQL does, the smaller
    offset applies to an hour that the clock shows twice, or never.
    """
    if not isinstance(value, datetime):
        raise TypeError(f"{where} takes an aware datetime, not {value!r}.")
    if value.utcoffset() is not None:
        return value
    if settings.USE_TZ:
        raise TypeError(
            f"{where} must be an aware datetime. {value!r} has no time zone. Use now() or "
            "make_aware() of django.utils.timezone."
        )
    first, second = (value.replace(tzinfo=timezone.get_default_timezone(), fold=fold) for fold in (0, 1))
    return min(first, second, key=lambda time: time.utcoffset() or timedelta(0))


class StepError(PgQueueError, RuntimeError):
    """A step's name was used before in this attempt, or its result could not be recorded.

    The message says which rule was broken. Nothing has been recorded.
    """


class LeaseLost(PgQueueError):
    """The job was given to another worker while this one ran it. This attempt no longer counts."""


class EventTimeout(PgQueueError, TimeoutError):
    """The event that the job waited for did not come in time. If the task lets it pass, the job fails."""


class JobFinished(PgQueueError, LookupError):
    """The job has finished, or does not exist, so it cannot receive a signal."""


class ParentGone(PgQueueError, LookupError):
    """A job is to wait for another job or batch that does not exist. It was rolled back, it is in another
    database, or its retention has ended. `current_job().parents` raises it for a parent that is not kept.
    """


class BatchFinished(PgQueueError, ValueError):
    """A job is to join a batch that has finished, or that does not exist. Nothing was enqueued."""


class Suspended(BaseException):
    """Leaves the task while its job sleeps or waits for a signal. Let it pass.

    It is not an `Exception`, so that ``except Exception`` does not stop it. When the wait ends, the task
    runs again from its start, and its recorded steps return their results at once.
    """

    def __init__(self, kind: str, name: str, seconds: float) -> None:
        super().__init__(kind, name, seconds)
        self.kind, self.name, self.seconds = kind, name, seconds

    def __str__(self) -> str:
        return f"{'waits for the event' if self.kind == 'event' else 'sleeps:'} {self.name}"
