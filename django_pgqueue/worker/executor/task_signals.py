"""Send Django's task signals if there are receivers: a signal costs as much as running a small job.

Django itself connects receivers that log when a task starts and how it ends. The worker's own log contains
more, so these lines are dropped unless the project's logging names their logger (``django.tasks``, or
``django_tasks`` of the backport). If it does, the signals are sent if such a logger writes lines of this
level. This is checked once per second. Only lines about jobs of this worker are dropped: of another backend,
such as Django's ``ImmediateBackend``, they may be the only report of a failure.
"""

from __future__ import annotations

import copy
import logging
import sys
import threading
from collections.abc import Callable
from time import monotonic
from typing import Any

from django.conf import settings
from django.dispatch import Signal

from ...compat import TaskResult, task_finished, task_started
from ...formatting import get_logger
from ...postgres.clock import known
from .running_job import RunningJob

logger = get_logger(__name__)

_LOGGERS = ("django.tasks", "django_tasks")
_SENDING = threading.local()


class Announcer:
    """Sends ``task_started`` and ``task_finished`` for one worker process."""

    def __init__(self) -> None:
        self._checked = -1.0
        self._started = self._finished = self._failed = False
        for name in _LOGGERS:
            logging.getLogger(name).addFilter(_is_wanted)

    def announces(self) -> bool:
        """Return whether anything wants to know of jobs that start or succeed."""
        self._look()
        return self._started or self._finished

    def started(self, running: RunningJob) -> None:
        """The task is about to run."""
        self._look()
        if self._started:
            _send(task_started, running.task_result)

    def succeeded(self, running: RunningJob, value: Any) -> None:
        """The task has returned ``value``."""
        if self._finished:
            job = copy.copy(running.job)
            job.status, job.result, job.finished_at = job.Status.DONE, value, known(running.alias)
            _send(task_finished, lambda: running.task_result(job))

    def failed(self, running: RunningJob, entry: str) -> None:
        """The attempt failed with ``running.error``; ``entry`` is the same error as JSON."""
        self._look()
        if self._failed:
            _while_handled(running.error, lambda: _send(task_finished, lambda: running.failed_result(entry)))

    def _look(self) -> None:
        now = monotonic()
        if now - self._checked >= 1:
            self._checked = now
            named = [logging.getLogger(name) for name in _LOGGERS if _is_named(name)]
            heard = any(logger.isEnabledFor(logging.INFO) for logger in named)
            # Django's own receiver, which logs, is one of them.
            self._started = heard or len(task_started.receivers) > 1
            self._finished = heard or len(task_finished.receivers) > 1
            # A failure is logged as an ERROR, which any handler may write.
            self._failed = self._finished or any(logger.isEnabledFor(logging.ERROR) for logger in named)


def _is_wanted(record: logging.LogRecord) -> bool:
    """Return whether to keep a record. Django's own receivers log while this thread sends a signal."""
    return not getattr(_SENDING, "now", False) or _is_named(record.name)


def _send(signal: Signal, make_result: Callable[[], TaskResult[..., Any]]) -> None:
    """Send the signal. Errors are logged, because they must not affect the job."""
    _SENDING.now = True
    try:
        result = make_result()
        for receiver, answer in signal.send_robust(type(result.task.get_backend()), task_result=result):
            if isinstance(answer, Exception):
                logger.error("receiver %r of a task signal raised", receiver, exc_info=answer)
    except Exception:  # the task may name a backend that does not exist
        logger.exception("a task signal could not be sent")
    finally:
        _SENDING.now = False


def _while_handled(error: BaseException | None, call: Callable[[], None]) -> None:
    """Call while ``sys.exc_info()``, which receivers read, returns this exception, and none that wraps it."""
    if error is None or sys.exc_info()[1] is error:
        call()
        return
    context, traceback = error.__context__, error.__traceback__
    try:
        raise error
    except BaseException:
        # Undo what raising it here has changed.
        error.__context__, error.__traceback__ = context, traceback
        call()


def _is_named(name: str) -> bool:
    """Return whether the project's logging configures this logger."""
    config = settings.LOGGING
    if isinstance(config, dict) and name in (config.get("loggers") or {}):
        return True
    logger = logging.getLogger(name)  # it may be configured in another way
    return bool(logger.level or logger.handlers or not logger.propagate)
