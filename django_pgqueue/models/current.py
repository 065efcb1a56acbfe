"""``CurrentJob``: the job whose task is running here, a ``Job`` that asks its worker for the current state.

It is a proxy of ``Job`` in a separate registry, like ``LiveJob``, so it has no migration, content type or
permissions. Only a worker makes one. Rows from the database, copies and pickles are plain ``Job`` objects.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from asgiref.sync import sync_to_async
from django.apps.registry import Apps

from .job import Job

if TYPE_CHECKING:
    from datetime import timedelta
    from threading import Event

    from ..job_log import Attempt

__all__ = ["CurrentJob", "Running"]


class Running(Protocol):
    """What a worker stores about a job while its task runs."""

    @property
    def job(self) -> CurrentJob:
        """The job, which is made at the first use because most tasks never use it."""

    @property
    def row(self) -> Attempt:
        """The row as it was claimed."""

    @property
    def asked_to_stop(self) -> bool:
        """Whether the job was asked to stop."""

    @property
    def cancel_event(self) -> Event:
        """An event that is set when the job is asked to stop."""

    def extend(self, seconds: float | timedelta) -> bool:
        """Postpone the timeout, and return whether the worker still holds the lease."""


class CurrentJob(Job):
    """The job whose task is running here, as ``current_job()`` returns it."""

    class Meta:
        proxy = True
        app_label = "django_pgqueue"
        apps = Apps()

    def __init__(self, running: Running, alias: str, /, **columns: Any) -> None:
        super().__init__(**columns)
        self._running = running
        self._state.adding = False
        self._state.db = alias

    @classmethod
    def from_db(cls, *args: Any, **kwargs: Any) -> Any:
        """Return a plain job: rows are never instances of this class."""
        return Job.from_db(*args, **kwargs)

    def __reduce__(self) -> str | tuple[Any, ...]:
        """Copy and pickle as a plain job, which may be used where there is no worker to ask."""
        plain = Job.__new__(Job)
        plain.__dict__.update(self.__dict__)
        del plain.__dict__["_running"]
        return plain.__reduce__()

    @property
    def cancel_requested(self) -> bool:
        """Whether the job was asked to stop. This is up to date and needs no query."""
        return self._running.asked_to_stop or super().cancel_requested

    def wait_for_cancel(self, timeout: float) -> bool:
        """In a sync task: sleep for ``timeout`` seconds, or until the job is asked to stop. Return whether it
        was.
        """
        return self._running.cancel_event.wait(timeout)

    def extend(self, seconds: float | timedelta) -> bool:
        """Postpone the timeout so that it does not come within the next ``seconds``.

        Return whether this worker still holds the lease of the job. If it does not, the outcome of the task
        will be refused. A job without a timeout has nothing to extend but gets the same answer. Raise
        ``TypeError`` or ``ValueError`` if ``seconds`` is not a duration of up to 100 years.
        """
        return self._running.extend(seconds)

    async def aextend(self, seconds: float | timedelta) -> bool:
        """Like ``extend()``, for async tasks."""
        return await sync_to_async(self.extend)(seconds)
