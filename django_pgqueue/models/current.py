"""``CurrentJob``: the job whose task is running here, a ``Job`` that asks its worker for the latest news.

It is a proxy of ``Job`` in a registry of its own, like ``LiveJob``: no migration, content type or permission
knows it. Only a worker makes one. What is read from the database, copied or pickled is a plain ``Job``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from asgiref.sync import sync_to_async
from django.apps.registry import Apps

from .job import Job

if TYPE_CHECKING:
    from datetime import timedelta
    from threading import Event

__all__ = ["CurrentJob", "Running"]


class Running(Protocol):
    """What a worker holds of a job while its task runs."""

    @property
    def job(self) -> CurrentJob:
        """Made when somebody asks, for most tasks never do."""

    @property
    def asked_to_stop(self) -> bool:
        """Whether somebody has cancelled the job."""

    @property
    def cancel_event(self) -> Event:
        """Set when somebody cancels the job."""

    def extend(self, seconds: float | timedelta) -> bool:
        """Put the timeout off; whether the lease is still held."""


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
        """Rows are plain jobs, by whichever class they are asked for."""
        return Job.from_db(*args, **kwargs)

    def __reduce__(self) -> str | tuple[Any, ...]:
        """A copy is a plain job as well: it may go where there is no worker to ask."""
        plain = Job.__new__(Job)
        plain.__dict__.update(self.__dict__)
        del plain.__dict__["_running"]
        return plain.__reduce__()

    @property
    def cancel_requested(self) -> bool:
        """Whether the job was asked to stop: the latest news, without a query."""
        return self._running.asked_to_stop or super().cancel_requested

    def wait_for_cancel(self, timeout: float) -> bool:
        """In a sync task: sleep up to ``timeout`` seconds, but no longer than until the job is asked to stop.
        Returns whether it was.
        """
        return self._running.cancel_event.wait(timeout)

    def extend(self, seconds: float | timedelta) -> bool:
        """Let the timeout come no sooner than ``seconds`` from now.

        Returns whether the job is still this worker's; False when its lease is lost, and then nothing that
        the task does will count. A job without a timeout has nothing to extend, and gets the answer all the
        same. Raises ``TypeError`` or ``ValueError`` if ``seconds`` is no duration of up to 100 years.
        """
        return self._running.extend(seconds)

    async def aextend(self, seconds: float | timedelta) -> bool:
        """Like ``extend()``, for async tasks."""
        return await sync_to_async(self.extend)(seconds)
