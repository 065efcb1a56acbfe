"""Whether a failed attempt is worth another, and how long to wait for it."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .validation import is_delay

if TYPE_CHECKING:
    from .compat import TaskResult
    from .definition import Task

logger = logging.getLogger(__name__)


def should_retry(task: Task[..., Any], exc: BaseException) -> bool:
    """Whether `exc` is one that the task retries: `fail_on` wins over `retry_on`, which is all if None.

    Says nothing about the budget of attempts.
    """
    if task.fail_on is not None and isinstance(exc, task.fail_on):
        return False
    return task.retry_on is None or isinstance(exc, task.retry_on)


def delay_before_retry(
    task: Task[..., Any],
    job_result_factory: Callable[[], TaskResult[..., Any]],
    exc: BaseException,
    attempt: int,
    base: float,
    ceiling: float,
) -> float | None:
    """Seconds to wait after the failed attempt number `attempt` (from 1); None: do not retry.

    `job_result_factory` makes the TaskResult that a callable backoff gets; it is called for nothing else.
    `base` and `ceiling` (seconds) are for a task without a backoff of its own. A callable that raises, or
    returns what is no delay, is logged and counts as none: it must not cost the job.
    """
    backoff = task.backoff
    if backoff is None:
        return exponential(attempt, base, ceiling)
    if isinstance(backoff, tuple):
        delay: float = backoff[min(attempt, len(backoff)) - 1]
        return delay
    if not callable(backoff):
        return backoff  # type: ignore[return-value]  # a sequence is kept as a tuple
    try:
        answer = backoff(exc, job_result_factory())
    except BaseException:  # a SystemExit too: the attempt is over, its outcome is what matters
        logger.exception("backoff of %s raised; the default backoff is used", task.module_path)
        return exponential(attempt, base, ceiling)
    if answer is None:
        return None
    if not is_delay(answer):
        logger.error(
            "backoff of %s returned %.100r, not seconds or None; the default backoff is used",
            task.module_path,
            answer,
        )
        return exponential(attempt, base, ceiling)
    return float(answer)


def exponential(attempt: int, base: float, ceiling: float) -> float:
    """`base` doubled for each attempt after the first, up to `ceiling`, less up to half of it at random.

    The random part keeps jobs that failed together from coming back together.
    """
    # Beyond 2**63 the ceiling is reached from any base worth the name, and floats do not overflow.
    longest = min(ceiling, base * 2.0 ** min(attempt - 1, 63))
    return longest * random.uniform(0.5, 1.0)
