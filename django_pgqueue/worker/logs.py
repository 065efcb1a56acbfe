"""What the worker logs: a line for each job; and where it goes if the project's LOGGING does not say."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..lifecycle.claim import Claimed
    from ..lifecycle.finish import Outcome

__all__ = ["configure_logging", "log_job", "logging_restored"]

logger = logging.getLogger("django_pgqueue.job")

#: Of the line of a job, by the kind of its outcome; INFO for all others.
_LEVEL_OF = {
    "failed": logging.ERROR,
    "retry": logging.WARNING,
    "crash": logging.WARNING,
    "lost": logging.WARNING,
    "unknown": logging.WARNING,
}
_WORDS = {"crash": "took its process down", "lost": "lost its lease", "unknown": "is unknown here and waits"}
_LOGGERS = ("django_pgqueue", "django_pgqueue.job")
_AT_VERBOSITY = {
    # verbosity: (the package, the lines of single jobs)
    0: (logging.WARNING, logging.ERROR),
    1: (logging.INFO, logging.WARNING),
    2: (logging.INFO, logging.INFO),
    3: (logging.DEBUG, logging.DEBUG),
}


def log_job(row: Claimed, outcome: Outcome, waited: float, ran: float) -> None:
    """One line for a job, with the figures as extras for structured logging.

    Done, cancelled, snoozed: INFO; retried, crash, lost, unknown: WARNING; failed: ERROR.
    """
    level = _LEVEL_OF.get(outcome.kind, logging.INFO)
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


def configure_logging(verbosity: int) -> None:
    """Write to standard error at the level of ``--verbosity``, unless handlers are configured."""
    logger = logging.getLogger("django_pgqueue")
    if logger.hasHandlers():
        return
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s [%(process)d] %(message)s"))
    logger.addHandler(handler)
    package, jobs = _AT_VERBOSITY[verbosity]
    logger.setLevel(package)
    logging.getLogger("django_pgqueue.job").setLevel(jobs)


@contextmanager
def logging_restored() -> Iterator[None]:
    """Take back at the end what ``configure_logging`` has done: a program may go on after the command."""
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    before = [(logger, logger.level, list(logger.handlers)) for logger in loggers]
    try:
        yield
    finally:
        for logger, level, handlers in before:
            logger.setLevel(level)
            logger.handlers[:] = handlers
