"""Decide whether a failed attempt is retried, and how long to wait before the retry."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from ..compat import TaskResult
from ..formatting import get_logger
from .options import is_delay
from .task import Task

logger = get_logger(__name__)


def leaves(exc: BaseException) -> list[BaseException]:
    """Return the exceptions in a group, at any depth, as if none were wrapped; for another, itself alone."""
    if isinstance(exc, BaseExceptionGroup):
        return [leaf for each in exc.exceptions for leaf in leaves(each)]
    return [exc]


def should_retry(task: Task[..., Any], exc: BaseException, group: BaseException | None = None) -> bool:
    """Return whether the task retries after `exc`, if attempts are left. `fail_on` wins over `retry_on`, of
    which None means all. `group`: what `exc` was raised in, which both may name as well.
    """
    if task.fail_on is not None and (isinstance(exc, task.fail_on) or isinstance(group, task.fail_on)):
        return False
    return task.retry_on is None or isinstance(exc, task.retry_on) or isinstance(group, task.retry_on)


def delay_before_retry(
    task: Task[..., Any],
    job_result_factory: Callable[[], TaskResult[..., Any]],
    exc: BaseException,
    attempt: int,
    base: float,
    ceiling: float,
) -> float | None:
    """Return the seconds to wait after the failed attempt number `attempt` (from 1); None: do not retry.

    `job_result_factory` makes the TaskResult for a callable backoff and is not called otherwise. `base` and
    `ceiling` (seconds) are used for a task without its own backoff. If a callable raises, or returns a value
    that is not a delay, this is logged and the default backoff is used, so that the job is not lost.
    """
    backoff = task.backoff
    if isinstance(backoff, tuple):
        delay: float = backoff[min(attempt, len(backoff)) - 1]
        return delay
    if callable(backoff):
        try:
            answer = backoff(exc, job_result_factory())
        except BaseException:  # SystemExit, too: the attempt has ended, and only its outcome matters
            logger.exception("backoff of %s raised an exception; using the default backoff", task.module_path)
        else:
            seconds = answer.total_seconds() if isinstance(answer, timedelta) else answer
            if seconds is None or is_delay(seconds):
                return seconds if seconds is None else float(seconds)
            logger.error(
                "backoff of %s returned %.100r, which is no duration and not None; using the default backoff",
                task.module_path, answer,
            )  # fmt: skip
    elif backoff is not None:
        return backoff  # type: ignore[return-value]  # a task keeps seconds, and a sequence as a tuple
    return exponential(attempt, base, ceiling)


def exponential(attempt: int, base: float, ceiling: float) -> float:
    """Double `base` for each attempt after the first, up to `ceiling`, and subtract up to half at random.

    The random part keeps jobs that failed at the same time from being retried at the same time.
    """
    # Any realistic base reaches the ceiling before 2**63, and up to there floats do not overflow.
    longest = min(ceiling, base * 2.0 ** min(attempt - 1, 63))
    return longest * random.uniform(0.5, 1.0)
