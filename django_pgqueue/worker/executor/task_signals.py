"""Django's task signals, sent when anybody listens: each costs as much as running a small job.

Django itself connects a receiver that writes a log line. It is worth calling only if that line would go
anywhere, which Django's default logging decides by a filter of its handler. The answer is looked up once a
second. A failed attempt always sends its signal: the line is an error then.
"""

from __future__ import annotations

import copy
import logging
from datetime import UTC, datetime
from time import monotonic
from typing import TYPE_CHECKING, Any

from ...compat import task_finished, task_started

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.dispatch import Signal

    from ...compat import TaskResult
    from .running_job import RunningJob

__all__ = ["Announcer"]

logger = logging.getLogger(__name__)

_LOGGERS = ("django.tasks", "django_tasks")


class Announcer:
    """Sends ``task_started`` and ``task_finished`` for one worker process."""

    def __init__(self) -> None:
        self._checked = -1.0
        self._started = self._finished = False

    def started(self, running: RunningJob) -> None:
        """The task is about to run."""
        self._look()
        if self._started:
            _send(task_started, running.task_result)

    def succeeded(self, running: RunningJob, value: Any) -> None:
        """The task has returned ``value``."""
        if self._finished:
            job = copy.copy(running.job)
            job.status, job.result, job.finished_at = job.Status.DONE, value, datetime.now(UTC)
            _send(task_finished, lambda: running.task_result(job))

    def failed(self, running: RunningJob, entry: str) -> None:
        """The attempt failed; ``entry`` is its error as JSON.

        To be called while the exception is handled: the receivers read it.
        """
        _send(task_finished, lambda: running.failed_result(entry))

    def _look(self) -> None:
        now = monotonic()
        if now - self._checked >= 1:
            self._checked = now
            heard = any(_is_heard(logging.getLogger(name)) for name in _LOGGERS)
            self._started = heard or _has_listeners(task_started)
            self._finished = heard or _has_listeners(task_finished)


def _send(signal: Signal, make_result: Callable[[], TaskResult[..., Any]]) -> None:
    """Whatever goes wrong here is logged: it must not cost the job."""
    try:
        result = make_result()
        for receiver, answer in signal.send_robust(type(result.task.get_backend()), task_result=result):
            if isinstance(answer, Exception):
                logger.error("receiver %r of a task signal raised", receiver, exc_info=answer)
    except Exception:  # the task may name a backend that does not exist
        logger.exception("a task signal could not be sent")


def _has_listeners(signal: Signal) -> bool:
    """Whether anybody but Django's own log receiver is connected."""
    return len(signal.receivers or []) > 1


def _is_heard(logger: logging.Logger) -> bool:
    """Whether an INFO line of this logger would reach a handler that writes it."""
    if not logger.isEnabledFor(logging.INFO):
        return False
    record = logger.makeRecord(logger.name, logging.INFO, "", 0, "", (), None)
    current: logging.Logger | None = logger
    while current is not None:
        if any(handler.level <= logging.INFO and handler.filter(record) for handler in current.handlers):
            return True
        current = current.parent if current.propagate else None
    return False
