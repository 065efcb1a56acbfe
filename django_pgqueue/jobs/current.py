"""The job that is running here, and how far it is. The task's own code, its coroutines and its
``to_thread`` threads know it.

Task modules import this module while apps load, so it imports no models.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from django.core.exceptions import SynchronousOnlyOperation

from ..compat import TaskContext
from ..tasks.progress import progress_of

if TYPE_CHECKING:
    from ..models.current import CurrentJob
    from ..worker.executor.running_job import RunningJob

T = TypeVar("T")
RUNNING: ContextVar[RunningJob] = ContextVar("django_pgqueue.running")


def current_job() -> CurrentJob:
    """Return the job whose task is running here. Raise ``LookupError`` outside of a task."""
    try:
        running = RUNNING.get()
    except LookupError:
        raise LookupError(
            "No job is running here. current_job() works only in code that a worker runs. "
            "If you call it in a thread of your own, start the thread with contextvars.copy_context().run. "
            "In a test, call the task with call_task() of django_pgqueue.testing."
        ) from None
    return running.job


@dataclass(frozen=True, slots=True, kw_only=True)
class JobContext(TaskContext):  # type: ignore[misc, type-arg]  # the stubs know other things of Django's
    """The first argument of a task with ``takes_context=True``.

    Besides Django's ``attempt`` and ``task_result`` it has the ``job``, which is that of ``current_job()``.
    """

    job: CurrentJob  # the job that is running


def track(
    iterable: Iterable[T] | AsyncIterable[T],
    total: float | None = None,
    *,
    note: str | Callable[[T], str] = "",
    every: int = 1,
) -> Tracked[T]:
    """Return the items of ``iterable``, and report the progress of the running job while they are used.

    For ``for`` and ``async for``. ``total``: how many there are; by default ``len(iterable)``, if it has one.
    ``note``: a note, or a function that returns one for the item whose turn it is. ``every``: report only
    every so many items. An item is done when the next one is requested. Where no job is running, this only
    iterates.

    Raise ``TypeError`` or ``ValueError`` for arguments that cannot be used.
    """
    if not hasattr(iterable, "__iter__") and not hasattr(iterable, "__aiter__"):
        raise TypeError(f"track() takes an iterable, not {iterable!r}.")
    if isinstance(every, bool) or not isinstance(every, int) or every < 1:
        raise ValueError(f"track(every=...) takes a whole number from 1, not {every!r}.")
    progress_of(0, total, "" if callable(note) else note)
    return Tracked(iterable, total, note, every)


@dataclass(frozen=True, slots=True, eq=False)
class Tracked(Generic[T]):
    """What ``track()`` returns. Each loop over it counts from 0."""

    _iterable: Any
    _total: float | None
    _note: str | Callable[[T], str]
    _every: int

    def __iter__(self) -> Iterator[T]:
        """Return the items."""
        count = _Count(self._iterable, self._total, self._note, self._every)
        for item in self._iterable:
            count.begin(item)
            yield item
            count.end()
        count.report()

    async def __aiter__(self) -> AsyncIterator[T]:
        """Return the items, for ``async for``. The iterable may be a plain one."""
        count = _Count(self._iterable, self._total, self._note, self._every)
        async for item in _as_async(self._iterable):
            count.begin(item)
            yield item
            count.end()
        count.report()


class _Count:
    """How many items of a loop are done. Where no job is running, nothing is reported."""

    def __init__(self, iterable: Any, total: float | None, note: Any, every: int) -> None:
        running = RUNNING.get(None)
        self._report = None if running is None else running.progress.report
        self._total = _length(iterable) if total is None and running is not None else total
        self._words = "" if callable(note) else note
        self._note = note if callable(note) and running is not None else None
        self._every = every
        self._done = 0
        self.report()

    def begin(self, item: Any) -> None:
        if self._note is not None and self._done % self._every == 0:
            self._words = self._note(item)
            self.report()

    def end(self) -> None:
        self._done += 1
        if self._done % self._every == 0:
            self.report()

    def report(self) -> None:
        if self._report is not None:
            self._report(self._done, self._total, self._words)


def _length(iterable: Any) -> int | None:
    """Return the number of items, if that is known without using them up."""
    try:
        return len(iterable)
    except (TypeError, SynchronousOnlyOperation):  # a QuerySet reads its rows, which async code must not do
        return None


async def _as_async(iterable: Any) -> AsyncIterator[Any]:
    if hasattr(iterable, "__aiter__"):
        async for item in iterable:
            yield item
    else:
        for item in iterable:
            yield item
