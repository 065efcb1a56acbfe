"""The event loop of async jobs: it takes jobs, runs them, and publishes their results.

Each job has its own context. In it, ``sync_to_async`` and so Django's ORM use a thread that the job borrows
(``sync_threads``). Most async jobs never need one, so thousands of them can run at the same time.

``asyncio.to_thread``, and ``sync_to_async`` with ``thread_sensitive=False``, use threads of the loop that
serve all jobs in turn. As it is not known when a job no longer needs such a thread, Django's connections are
closed there after each call.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import Context
from functools import partial
from threading import Lock, Thread
from time import monotonic
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from asgiref.sync import SyncToAsync, ThreadSensitiveContext
from django.db import connections

from . import fork, outcomes
from .connections import tidy_up
from .outcomes import Result
from .payloads import PayloadReader
from .sync_threads import JobThread, SyncThreads

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ...lifecycle.claimed import Claimed
    from .running_job import RunningJob

__all__ = ["EventLoop"]

logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")


class EventLoop:
    """Runs at most ``slots`` jobs at the same time. At most ``threads`` of them do sync work. Its own thread
    starts with the first job.

    ``run`` runs a job and sets its outcome. ``publish`` is called on the loop's thread: with each result, and
    without one when the last job that waited for a slot has started.
    """

    def __init__(
        self,
        slots: int,
        threads: int,
        run: Callable[[RunningJob], Awaitable[None]],
        publish: Callable[[list[Result]], None],
    ) -> None:
        self._run = run
        self._publish = publish
        self._waiting: deque[RunningJob] = deque()
        self._slots = slots
        self._running = 0
        self._sync_threads = SyncThreads(min(slots, threads), shared=slots > threads)
        self._reader = PayloadReader(self._borrow)
        self._stopped = False
        # Two job threads, or one and the producer, may submit the first async jobs at the same time.
        self._lock = Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: Thread | None = None

    # -- called by other threads

    def submit(self, jobs: list[RunningJob]) -> None:
        """Run jobs. Raise ``RuntimeError`` if the loop has stopped."""
        loop = self._started()
        self._waiting.extend(jobs)
        loop.call_soon_threadsafe(self._start_coroutines)

    def has_backlog(self) -> bool:
        """Return whether jobs wait for a slot."""
        return bool(self._waiting)

    def held(self) -> int:
        """Return how many jobs run or wait for a slot."""
        return self._running + len(self._waiting)

    def take_back(self) -> list[Claimed]:
        """Remove and return the rows that have not been started."""
        rows = []
        while self._waiting:
            try:
                rows.append(self._waiting.popleft().row)
            except IndexError:  # the loop was faster
                break
        return rows

    def stop(self) -> None:
        """Cancel running jobs and start no more. This does not wait."""
        with self._lock:
            self._stopped = True
            if self._loop is not None and not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._loop.stop)

    def join(self, timeout: float) -> None:
        """Wait up to ``timeout`` seconds for the loop's thread to end, and for those of sync work."""
        end = monotonic() + timeout
        if self._thread is not None:
            self._thread.join(timeout)
        self._sync_threads.join(max(0.0, end - monotonic()))

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._stopped:
                raise RuntimeError("this worker has stopped")
            if self._loop is None:
                self._loop = _new_loop()
                self._thread = Thread(
                    target=self._run_loop, name="pgqueue-event-loop", args=(self._loop,), daemon=True
                )
                self._thread.start()
            return self._loop

    # -- on its own thread

    def _run_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        while not self._stopped:
            try:
                loop.run_forever()
            except (SystemExit, KeyboardInterrupt) as error:
                # asyncio lets these exceptions leave the loop if a task that a job has started raises them.
                logger.error("an async task of a job raised %r in the event loop", error)
        loop.run_until_complete(self._close())
        loop.run_until_complete(loop.shutdown_asyncgens())
        with self._lock:
            loop.close()

    async def _close(self) -> None:
        """Cancel jobs that did not finish within the grace period; the producer has given them back."""
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
        self._sync_threads.stop()

    def _start_coroutines(self) -> None:
        if not self._waiting:
            return
        while self._waiting and not self._stopped:
            if self._running >= self._slots:
                return
            try:
                running = self._waiting.popleft()
            except IndexError:  # the producer took it back
                break
            self._running += 1
            if running.task.payload is not None:
                running.reader = self._reader
            thread, context = self._borrow()
            coroutine = self._run_job(thread, running)
            task = asyncio.get_running_loop().create_task(coroutine, context=context)
            task.add_done_callback(partial(self._ended, running))
        self._publish([])

    def _borrow(self) -> tuple[JobThread, Context]:
        """Return a thread for sync work, which starts if it is needed, and a context that uses it."""
        thread = JobThread(self._sync_threads)
        return thread, _new_context(thread)

    async def _run_job(self, thread: JobThread, running: RunningJob) -> None:
        try:
            await self._run(running)
        finally:
            await thread.end()

    def _ended(self, running: RunningJob, task: asyncio.Task[None]) -> None:
        self._running -= 1
        row = running.row
        if self._stopped:
            return  # the producer has given the job back
        error = None if task.cancelled() else task.exception()
        outcome = running.outcome
        if outcome is None:  # this is a bug of the worker
            logger.error("job %s is requeued because of an error in the worker", row.id, exc_info=error)
            outcome = outcomes.worker_failed(row)
        self._publish([Result(row, outcome, running.ran, failure=running.take_failure())])
        self._start_coroutines()


def _new_context(thread: JobThread) -> Context:
    """Return an empty context in which thread-sensitive calls run on the job's thread."""
    key, context = ThreadSensitiveContext(), Context()
    context.run(SyncToAsync.thread_sensitive_context.set, key)
    SyncToAsync.context_to_thread_executor[key] = thread  # as long as the context is used
    return context


def _new_loop() -> asyncio.AbstractEventLoop:
    """Return a loop that is ready to run jobs."""
    loop = asyncio.new_event_loop()
    loop.set_default_executor(_TidyThreads(thread_name_prefix="pgqueue-to-thread"))
    return loop


class _TidyThreads(ThreadPoolExecutor):
    def submit(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        return super().submit(_tidied, call, *args, **kwargs)


def _tidied(call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    try:
        return fork.call_body(call, args, kwargs)
    finally:
        tidy_up()
        connections.close_all()
