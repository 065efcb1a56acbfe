"""What surrounds the body of a task: Sentry's scope, the context of the enqueue, a span, the log capture.

A job that has none of this, in a project that has no OpenTelemetry, gets only Sentry's scope.
"""

from __future__ import annotations

import logging
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from ... import sentry, tracing
from ...context import restored
from ...stored_json import load
from .log_capture import capture_of, capturing

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from .running_job import RunningJob

__all__ = ["surroundings"]

logger = logging.getLogger(__name__)


def surroundings(running: RunningJob) -> AbstractContextManager[Any]:
    """Return the context manager in which the task runs. Its value is the scope, or None without Sentry.

    It is entered in a ``contextvars`` context of the job's own, after the job has become the current one.
    """
    row = running.row
    if (log := capture_of(running.task.capture_logs, row.queue_name)) is not None:
        running.log = log
    if row.context is None and running.log is None and not tracing.in_use():
        return sentry.job_scope(row)
    return _surrounded(running)


@contextmanager
def _surrounded(running: RunningJob) -> Iterator[Any]:
    row = running.row
    context = load(row.context) if row.context is not None else {}
    if not isinstance(context, dict):
        logger.warning("job %s runs without its context, which is nested too deeply for Python", row.id)
        context = {}
    with ExitStack() as stack:
        scope = stack.enter_context(sentry.job_scope(row))
        stack.enter_context(restored(context))
        if running.log is not None:
            stack.enter_context(capturing())
        span = stack.enter_context(tracing.processing(row, context.get("trace")))
        try:
            yield scope
        finally:
            span.ended(running.error)
