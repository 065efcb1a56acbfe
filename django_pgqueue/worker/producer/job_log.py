"""Log a line for each attempt of this worker: how it ended, why, and when the job runs again."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ...job_log import Ending, is_logged, log_ending
from ...redaction import redact_text

if TYPE_CHECKING:
    from ...lifecycle.claimed import Claimed
    from ...lifecycle.finish import Outcome
    from ..executor.failure import Failure

__all__ = ["log_job"]

MESSAGE_LIMIT = 200
"""How many characters of an error's message are in the line. The traceback below it has the rest."""

_WORDS = {
    "retry": "failed",
    "snooze": "snoozed",
    "release": "requeued",
    "wait": "waits for a signal",
    "crash": "crashed its process",
    "lost": "lost its lease",
    "unknown": "is unknown here",
}


def log_job(row: Claimed, outcome: Outcome, waited: float, ran: float, failure: Failure | None) -> None:
    """Log the line of a job, if its level is enabled."""
    if not is_logged(outcome.kind):
        return
    error = json.loads(outcome.error) if outcome.error is not None else None
    ending = Ending(
        outcome.kind,
        _WORDS.get(outcome.kind, outcome.kind),
        why=redact_text(_why(outcome, error), row.task_path),
        delay=outcome.delay or 0.0,
        error_class=error and error["class"],
        waited=waited,
        ran=ran,
        exc_info=_exc_info(failure),
        scope=failure and failure.scope,
    )
    log_ending(row, ending)


def _exc_info(failure: Failure | None) -> Any:
    if failure is None:
        return None
    # A tuple, because logging would test the truth value of the exception itself, which may be False.
    error = failure.error
    return type(error), error, error.__traceback__


def _why(outcome: Outcome, error: dict[str, Any] | None) -> str:
    """Return the reason that the worker gives, or else the first line of the exception, shortened."""
    if outcome.reason:
        return outcome.reason
    if error is None:
        return ""
    first = error["message"].partition("\n")[0]
    if len(first) > MESSAGE_LIMIT:
        first = first[: MESSAGE_LIMIT - 1] + "…"
    name = error["class"].removeprefix("builtins.")
    return f"{name}: {first}" if first else name
