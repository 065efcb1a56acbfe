"""Log a line for each attempt of a job: how it ended, why, and when the job runs again."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from .. import sentry

if TYPE_CHECKING:
    from ...lifecycle.claim import Claimed
    from ...lifecycle.finish import Outcome
    from ..executor.failure import Failure

__all__ = ["log_job", "logger"]

logger = logging.getLogger("django_pgqueue.job")

MESSAGE_LIMIT = 200
"""How many characters of an error's message are in the line. The traceback below it has the rest."""

_LINE = "job %s %s %s (queue %s, attempt %s, waited %.3f s, ran %.3f s)%s"

#: The level of the line for each kind of outcome; INFO for all others.
_LEVEL_OF = {
    "failed": logging.ERROR,
    "retry": logging.WARNING,
    "crash": logging.WARNING,
    "lost": logging.WARNING,
    "unknown": logging.DEBUG,  # unknown_tasks.py logs one WARNING for many of them
}
_WORDS = {
    "retry": "failed",
    "snooze": "snoozed",
    "crash": "crashed its process",
    "lost": "lost its lease",
    "unknown": "is unknown here",
}
_RUNS_AGAIN = frozenset({"retry", "snooze", "crash", "unknown"})


def log_job(row: Claimed, outcome: Outcome, waited: float, ran: float, failure: Failure | None) -> None:
    """Log one line for a job, with its values as extras for structured logging.

    The level is INFO for done, cancelled and snoozed jobs, WARNING for an attempt that is retried, a crash or
    a lost lease, and ERROR for a failed job.
    """
    level = _LEVEL_OF.get(outcome.kind, logging.INFO)
    if not logger.isEnabledFor(level):
        return
    attempt = row.attempts - row.forgiven_attempts
    extra: dict[str, Any] = {
        "job_id": row.id, "task_path": row.task_path, "queue_name": row.queue_name, "attempt": attempt,
        "outcome": outcome.kind, "waited": waited, "ran": ran,
    }  # fmt: skip
    if row.max_attempts is not None:
        extra["max_attempts"] = row.max_attempts
    error = json.loads(outcome.error) if outcome.error is not None else None
    if error is not None:
        extra["error_class"] = error["class"]
    word = _WORDS.get(outcome.kind, outcome.kind)
    if outcome.kind in _RUNS_AGAIN:
        word += _runs_again(outcome.delay or 0.0, extra)
    values = (
        row.id, row.task_path, word, row.queue_name,
        attempt if row.max_attempts is None else f"{attempt} of {row.max_attempts}",
        waited, ran, _why(outcome, error),
    )  # fmt: skip
    with sentry.report_scope(row, failure and failure.scope):
        try:
            logger.log(level, _LINE, *values, exc_info=_exc_info(failure), extra=extra)
        except BaseException:  # formatting the exception may raise, too; then the line is logged without it
            logger.log(level, _LINE, *values, extra=extra)


def _exc_info(failure: Failure | None) -> Any:
    if failure is None:
        return None
    # A tuple, because logging would test the truth value of the exception itself, which may be False.
    error = failure.error
    return type(error), error, error.__traceback__


def _runs_again(delay: float, extra: dict[str, Any]) -> str:
    """Return when the next attempt starts, in words and as extras. This uses the clock of this machine."""
    at = datetime.now(UTC) + timedelta(seconds=delay)
    extra["retry_in"], extra["next_run"] = delay, at.isoformat()
    if not delay:
        return "; it runs again at once"
    seconds = f"{delay:.1f}" if delay < 10 else f"{delay:.0f}"
    return f"; it runs again in {seconds} s, at {at:%Y-%m-%d %H:%M:%S} UTC"


def _why(outcome: Outcome, error: dict[str, Any] | None) -> str:
    """Return the reason that the worker gives, or else the first line of the exception, shortened."""
    if outcome.reason:
        return f": {outcome.reason}"
    if error is None:
        return ""
    first = error["message"].partition("\n")[0]
    if len(first) > MESSAGE_LIMIT:
        first = first[: MESSAGE_LIMIT - 1] + "…"
    name = error["class"].removeprefix("builtins.")
    return f": {name}: {first}" if first else f": {name}"
