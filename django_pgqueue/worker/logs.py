"""One line of log for each job, with the figures as extras for structured logging."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..lifecycle.claim import Claimed
    from ..lifecycle.finish import Outcome

__all__ = ["log_job"]

logger = logging.getLogger("django_pgqueue.job")

_LEVELS = {
    "failed": logging.ERROR,
    "retry": logging.WARNING,
    "crash": logging.WARNING,
    "lost": logging.WARNING,
    "unknown": logging.WARNING,
}
_WORDS = {"crash": "took its process down", "lost": "lost its lease", "unknown": "is unknown here and waits"}


def log_job(row: Claimed, outcome: Outcome, waited: float, ran: float) -> None:
    """Done, cancelled, snoozed: INFO; retried, crash, lost, unknown: WARNING; failed: ERROR."""
    level = _LEVELS.get(outcome.kind, logging.INFO)
    if not logger.isEnabledFor(level):
        return
    word = _WORDS.get(outcome.kind, outcome.kind)
    reason = f": {outcome.reason}" if outcome.reason else ""
    logger.log(
        level,
        "job %s %s %s (queue %s, attempt %s, waited %.3f s, ran %.3f s)%s",
        row.id, row.task_path, word, row.queue_name, row.attempts, waited, ran, reason,
        extra={
            "job_id": row.id, "task_path": row.task_path, "queue_name": row.queue_name,
            "attempt": row.attempts, "outcome": word, "waited": waited, "ran": ran,
        },
    )  # fmt: skip
