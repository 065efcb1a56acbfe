"""The log line of a job. Workers and supervisors use the same form."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from typing import Any

from .. import conf
from ..formatting import get_logger
from ..redaction import redact_text
from . import sentry

logger = get_logger("django_pgqueue.job")

#: The level of the line for each kind of outcome; INFO for all others.
_LEVEL_OF = {
    "failed": logging.ERROR,
    "retry": logging.WARNING,
    "crash": logging.WARNING,
    "lost": logging.WARNING,
    "unknown": logging.DEBUG,  # worker/producer/reporter.py logs one WARNING for many
}
_RUNS_AGAIN = frozenset({"retry", "snooze", "wait", "crash", "unknown"})


def is_logged(kind: str) -> bool:
    """Return whether an ending of this kind is logged at all."""
    return logger.isEnabledFor(_LEVEL_OF.get(kind, logging.INFO))


def log_ending(
    job: Any,
    kind: str,
    words: str,
    *,
    why: str = "",
    delay: float = 0.0,
    error_class: str | None = None,
    waited: float | None = None,
    ran: float | None = None,
    exc_info: Any = None,
    scope: Any = None,
) -> None:
    """Log one line for a job, a row with its columns, with its values as extras for structured logging.

    ``words``: how the attempt ended. ``delay``: seconds until the job runs again, if it does. ``waited`` and
    ``ran``: in seconds; None if they were not measured. ``scope``: that of Sentry in which the job ran.

    The level is INFO for done, cancelled and snoozed jobs, WARNING for an attempt that is retried, a crash or
    a lost lease, and ERROR for a failed job.
    """
    attempt = job.attempts - job.forgiven_attempts
    extra: dict[str, Any] = {
        "job_id": job.id, "task_path": job.task_path, "queue_name": job.queue_name, "attempt": attempt,
        "outcome": kind, "waited": waited, "ran": ran,
    }  # fmt: skip
    if job.max_attempts is not None:
        extra["max_attempts"] = job.max_attempts
    if error_class is not None:
        extra["error_class"] = error_class
    if kind in _RUNS_AGAIN:  # by the clock of this machine
        at = datetime.now(UTC) + timedelta(seconds=delay)
        extra["retry_in"], extra["next_run"] = delay, at.isoformat()
        seconds = f"{delay:.1f}" if delay < 10 else f"{delay:.0f}"
        when = f"in {seconds} s, at {at:%Y-%m-%d %H:%M:%S} UTC" if delay else "at once"
        words += f"; it runs again {when}"
    which = attempt if job.max_attempts is None else f"{attempt} of {job.max_attempts}"
    times = "" if waited is None or ran is None else f", waited {waited:.3f} s, ran {ran:.3f} s"
    line = "job %s %s %s (queue %s, attempt %s%s)%s"
    values = (job.id, job.task_path, words, job.queue_name, which, times, f": {why}" if why else "")
    level = _LEVEL_OF.get(kind, logging.INFO)
    with sentry.job_scope(job, scope):
        try:
            logger.log(level, line, *values, exc_info=exc_info, extra=extra)
        except BaseException:  # formatting the exception may raise, too; then the line is logged without it
            logger.log(level, line, *values, extra=extra)


def _redact_traceback(record: logging.LogRecord) -> bool:
    """Let handlers show the redacted traceback, which they otherwise make from the exception."""
    if record.exc_info and not conf.current().redact.are_names:
        text = record.exc_text or logging.Formatter().formatException(record.exc_info)
        record.exc_text = redact_text(text, getattr(record, "task_path", ""))
    return True


logger.addFilter(_redact_traceback)
