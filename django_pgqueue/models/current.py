"""``CurrentJob``: the job whose task is running here, a ``Job`` that asks its worker for the current state.

It is a proxy of ``Job`` in a separate registry, like ``LiveJob``, so it has no migration, content type or
permissions. Only a worker makes one. Rows from the database, copies and pickles are plain ``Job`` objects.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from asgiref.sync import sync_to_async
from django.apps.registry import Apps

from ..compat import for_async
from ..exceptions import duration as seconds
from ..tasks.progress import Progress
from .batch import Parents
from .job import Job

if TYPE_CHECKING:
    from ..jobs.batches import Batch
    from ..worker.executor.running_job import RunningJob

P = ParamSpec("P")
R = TypeVar("R")


class CurrentJob(Job):
    """The job whose task is running here, as ``current_job()`` returns it."""

    class Meta:
        proxy = True
        app_label = "django_pgqueue"
        apps = Apps()

    def __init__(self, running: RunningJob, alias: str, /, **columns: Any) -> None:
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

    def wait_for_cancel(self, timeout: float | timedelta) -> bool:
        """In a sync task: sleep for ``timeout`` (seconds or a timedelta), or until the job is asked to stop.
        Return whether it was.
        """
        return self._running.cancel_event.wait(seconds("wait_for_cancel(timeout)", timeout))

    def retry(self, *_: Any, **__: Any) -> bool:
        """Raise ``TypeError``: a running job cannot be retried. Raise ``RetryLater`` in the task."""
        raise TypeError(
            "The job is running. To fail this attempt and retry it, write: raise RetryLater(delay)"
        )

    aretry = retry  # type: ignore[assignment]

    def extend(self, duration: float | timedelta) -> bool:
        """Postpone the timeout so that it does not come within this time (seconds or a timedelta) from now.

        Return whether this worker still holds the lease of the job. If it does not, the outcome of the task
        will be refused. A job without a timeout has nothing to extend but gets the same answer. Raise
        ``TypeError`` or ``ValueError`` for anything but a duration of up to 100 years.
        """
        return self._running.extend(duration)

    aextend = for_async(extend)

    @property
    def progress(self) -> Progress | None:
        """What this attempt has last reported; before that, what is stored of an attempt before it."""
        return self._running.progress.last or super().progress

    def set_progress(
        self, done: float | Decimal, total: float | Decimal | None = None, note: str = ""
    ) -> None:
        """Report how far the job is: ``done`` of ``total``, and a note.

        The last call counts, and replaces all of the one before. It takes a microsecond, and works in every
        thread, in async tasks and in transactions: the worker stores the last values once a second. A note is
        cut after 200 characters. Raise ``TypeError`` or ``ValueError`` for other numbers than 0 to 2**53.
        """
        self._running.progress.report(done, total, note)

    @property
    def parents(self) -> Parents:
        """The jobs and batches that this one was enqueued after (``after=``), with their results."""
        return self._running.parents

    async def aparents(self) -> Parents:
        """Like ``parents``, for async tasks. Everything has been read, also the results."""

        def read() -> Parents:
            self.parents.results_of_batches  # noqa: B018
            return self.parents

        return await sync_to_async(read)()

    @property
    def batch(self) -> Batch | None:
        """The batch that this job belongs to, to which it may add others. None: it belongs to none."""
        return self._running.batch

    async def abatch(self) -> Batch | None:
        """Like ``batch``, for async tasks."""
        return await sync_to_async(lambda: self.batch)()

    def step(self, name: str, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call ``function`` once in the life of the job, and return its result.

        When the job runs again, the call returns the recorded result at once, so the result must be JSON, and
        the first call, too, returns what JSON makes of it: a tuple becomes a list. A process may die after
        the function and before the record, so the function may run more than once (see ``atomic_step``).
        ``name`` distinguishes the steps of a job.

        Raise ``StepError`` for a name that this attempt has used before, in a transaction, and if the result
        is not JSON; ``LeaseLost`` if another worker has the job by now.
        """
        result: R = self._running.steps.run(name, function, args, kwargs)
        return result

    def atomic_step(self, name: str, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Like ``step()``, with the function and its record in one transaction of the queue's database.

        What the function writes there takes effect exactly once.
        """
        result: R = self._running.steps.run_atomic(name, function, args, kwargs)
        return result

    async def astep(
        self, name: str, function: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Like ``step()``, for async tasks and coroutine functions. It works with ``asyncio.gather``."""
        result: R = await self._running.steps.arun(name, function, args, kwargs)
        return result

    def sleep(self, name: str, duration: float | timedelta, /) -> None:
        """Continue the job after ``duration`` (seconds, or a timedelta), counted from the first call.

        The job leaves its worker and spends no attempt. The task runs again from its start, where its
        recorded steps return at once.
        """
        self._running.steps.sleep(name, duration)

    asleep = for_async(sleep)

    def receive_event(self, name: str, /, timeout: float | timedelta | None = None) -> Any:
        """Continue the job when it is sent this event (``django_pgqueue.send_event``); return its value.

        The job leaves its worker while it waits. Raise ``EventTimeout`` if the event has not come within
        ``timeout`` (seconds, or a timedelta), counted from the first call.
        """
        return self._running.steps.receive_event(name, timeout)

    areceive_event = for_async(receive_event)
