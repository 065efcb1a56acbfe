"""What a task raises to steer its own job, and the errors of this package.

A task that is wrongly declared raises Django's own ``InvalidTask``. All exceptions here take their
arguments by position as well, because an exception with keyword-only arguments cannot be unpickled.
"""

from __future__ import annotations

from datetime import datetime, timedelta


class PgQueueError(Exception):
    """Base of the errors of this package."""


class UnknownTask(PgQueueError, LookupError):
    """A task path that leads to no task here. The cause, if there is one, is the failed import."""


class PayloadError(PgQueueError, TypeError, ValueError):
    """Arguments, metadata or a result that JSON or PostgreSQL cannot hold, or that are too large.

    Both a TypeError and a ValueError, as it stands for those that ``json.dumps`` raises.
    """


class WrongBackend(PgQueueError, TypeError):
    """A task was given to `enqueue` whose backend in TASKS is somebody else's."""


class JobControl(Exception):
    """Base of what a task raises to steer its own job."""


class RetryLater(JobControl):
    """Raise in a task: this attempt failed, try again.

    `after`: when, in seconds or as a timedelta; None leaves it to the backoff of the task. It counts as
    an attempt: when the budget is spent, the job fails. ``raise RetryLater(after=60) from error`` keeps
    the cause in the job's errors.
    """

    def __init__(self, after: timedelta | float | None = None) -> None:
        super().__init__(after)
        self.after = after
        self.seconds = None if after is None else duration("RetryLater(after=...)", after)

    def __str__(self) -> str:
        return "retry" if self.seconds is None else f"retry after {self.seconds:g} s"


class Snooze(JobControl):
    """Raise in a task: not now, run again at `until` (aware datetime, or a timedelta from now).

    It spends no attempt.
    """

    def __init__(self, until: datetime | timedelta) -> None:
        super().__init__(until)
        if isinstance(until, timedelta):
            duration("Snooze(until=...)", until)
        elif not isinstance(until, datetime) or until.utcoffset() is None:
            raise TypeError(f"Snooze(until=...) takes an aware datetime or a timedelta, not {until!r}")
        self.until = until

    def __str__(self) -> str:
        return f"snooze {'until' if isinstance(self.until, datetime) else 'for'} {self.until}"


class CancelJob(JobControl):
    """Raise in a task: end this job as cancelled, for `reason`, without a retry."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason


class WorkerLost(PgQueueError):
    """Its worker died while it held a job that must not run twice (`on_lost="fail"`).

    Never raised: the recovery writes it into the job's errors, where `TaskError.exception_class` finds it.
    """


class TooManyCrashes(PgQueueError):
    """The job has taken its process down `CRASH_LIMIT` times.

    Never raised: the recovery writes it into the job's errors, where `TaskError.exception_class` finds it.
    """


class TaskTimeout(PgQueueError):
    """A task has run longer than its `timeout`. Raised in the task, wherever it is at that moment.

    The attempt has failed, and is retried like any other failure.
    """

    def __init__(self, message: str = "the task has run longer than its timeout") -> None:
        super().__init__(message)


def duration(where: str, value: timedelta | float) -> float:
    """`value` in seconds; TypeError or ValueError for anything but a duration of at most 100 years."""
    if isinstance(value, timedelta):
        value = value.total_seconds()
    elif isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{where} takes seconds or a timedelta, not {value!r}")
    if not 0 <= value <= 36525 * 86400:  # NaN too
        raise ValueError(f"{where} takes a duration from 0 to 100 years, not {value!r} seconds")
    return float(value)
