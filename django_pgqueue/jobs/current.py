"""The job that is running here. The task's own code, its coroutines and its ``to_thread`` threads know it.

Task modules import this module while apps load, so it imports no models.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..compat import TaskContext

if TYPE_CHECKING:
    from ..models.current import CurrentJob
    from ..worker.executor.running_job import RunningJob

RUNNING: ContextVar[RunningJob] = ContextVar("django_pgqueue.running")


def current_job() -> CurrentJob:
    """Return the job whose task is running here, a ``Job`` that can ask its worker.

    Raise ``LookupError`` outside of a task.
    """
    try:
        running = RUNNING.get()
    except LookupError:
        raise LookupError(
            "No job is running here. current_job() works only in code that a worker runs. "
            "If you call it in a thread of your own, start the thread with contextvars.copy_context().run. "
            "In a test, call the task with call_task() of django_pgqueue.testing."
        ) from None
    return running.job


# ----------------------------------------------------------------------------
# ``JobContext``: what a task with ``takes_context=True`` receives, Django's ``TaskContext`` with the job.

if TYPE_CHECKING:
    Context = TaskContext[Any, Any]
else:
    Context = TaskContext


@dataclass(frozen=True, slots=True, kw_only=True)
class JobContext(Context):  # type: ignore[misc]  # the stubs do not say that Django's is frozen
    """The first argument of a task with ``takes_context=True``.

    Besides Django's ``attempt`` and ``task_result`` it has the ``job``, which is that of ``current_job()``.
    """

    job: CurrentJob
    """The job that is running."""
