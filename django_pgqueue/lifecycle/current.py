"""The job that is running here: known to the task's own code, its threads by ``to_thread``, its
coroutines.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ..models import Job

__all__ = ["RUNNING", "current_job"]


class Running(Protocol):
    """What a worker puts here: it makes the ``Job`` when somebody asks, for most tasks never do."""

    @property
    def job(self) -> Job: ...


RUNNING: ContextVar[Running] = ContextVar("django_pgqueue.running")


def current_job() -> Job:
    """The ``Job`` whose task is running here. Raises ``LookupError`` outside of one."""
    try:
        running = RUNNING.get()
    except LookupError:
        raise LookupError(
            "No job is running here: current_job() is for code that a worker runs. "
            "Called in a thread of your own? Start it with contextvars.copy_context().run."
        ) from None
    return running.job
