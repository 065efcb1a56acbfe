"""The job that is running here: known to the task's own code, its threads by ``to_thread``, its
coroutines.

A module of tasks imports this while apps load, so it imports no models.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..models.current import CurrentJob, Running

__all__ = ["RUNNING", "current_job"]

RUNNING: ContextVar[Running] = ContextVar("django_pgqueue.running")


def current_job() -> CurrentJob:
    """The job whose task is running here: a ``Job`` that can ask its worker.

    Raises ``LookupError`` outside of a task.
    """
    try:
        running = RUNNING.get()
    except LookupError:
        raise LookupError(
            "No job is running here: current_job() is for code that a worker runs. "
            "Called in a thread of your own? Start it with contextvars.copy_context().run."
        ) from None
    return running.job
