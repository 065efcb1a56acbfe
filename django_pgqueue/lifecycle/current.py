"""The job that is running here. The task's own code, its coroutines and its ``to_thread`` threads know it.

Task modules import this module while apps load, so it imports no models.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..models.current import CurrentJob, Running

__all__ = ["RUNNING", "current_job"]

RUNNING: ContextVar[Running] = ContextVar("django_pgqueue.running")


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
