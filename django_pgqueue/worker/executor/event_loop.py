"""The event loop of async jobs: it takes jobs, runs them, and publishes their results.

Each of its slots runs one job at a time and has its own thread for sync work. ``sync_to_async`` runs code
that must stay on one thread, such as Django's ORM, on the thread of its context. Under ASGI each request has
its own. Without one, all jobs of the process would share a single thread: a job that blocks it would hold up
all the others, and a transaction that one job leaves open would contain what the others write. A slot keeps
its thread, and so its database connections, from job to job. Most async jobs never need the thread, so it is
made at its first use.

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
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from asgiref.sync import SyncToAsync, ThreadSensitiveContext, sync_to_async
from django.db import connections

from ... import conf
from . import fork, outcomes
from .connections import close_unused, drop_dead, tidy_up
from .outcomes import Result

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from concurrent.futures import Executor

    from ...lifecycle.claimed import Claimed
    from .running_job import RunningJob

__all__ = ["EventLoop"]

logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")


class EventLoop:
    """Runs at most ``slots`` jobs at the same time. Its thread starts with the first job.

    ``run`` runs a job and sets its outcome. ``publish`` is called on the loop's thread: with each result, and
    without one when the last job that waited for a slot has started.
    """

    def __init__(
        self,
        slots: int,
        run: Callable[[RunningJob], Awaitable[None]],
        publish: Callable[[list[Result]], None],
    ) -> None:
        self._run = run
        self._publish = publish
        self._waiting: deque[RunningJob] = deque()
        self._free_slots: list[_Slot] = []
        self._slots_to_make = slots
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
        """Wait up to ``timeout`` seconds for the loop's thread to end."""
        if self._thread is not None:
            self._thread.join(timeout)

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
        for slot in self._free_slots:
            await asyncio.create_task(slot.close(), context=slot.new_context())

    def _start_coroutines(self) -> None:
        if not self._waiting:
            return
        while self._waiting and not self._stopped:
            if not self._free_slots:
                if not self._slots_to_make:
                    return
                self._slots_to_make -= 1
                self._free_slots.append(_Slot())
            try:
                running = self._waiting.popleft()
            except IndexError:  # the producer took it back
                break
            slot = self._free_slots.pop()  # the one used last, so that the others can close their connections
            slot.wake()
            coroutine = self._run_in(slot, running)
            task = asyncio.get_running_loop().create_task(coroutine, context=slot.new_context())
            task.add_done_callback(partial(self._ended, slot, running))
        self._publish([])

    async def _run_in(self, slot: _Slot, running: RunningJob) -> None:
        if slot.has_thread():
            await slot.drop_dead()
        try:
            await self._run(running)
        finally:
            if slot.has_thread():
                await slot.tidy_up()

    def _ended(self, slot: _Slot, running: RunningJob, task: asyncio.Task[None]) -> None:
        self._free_slots.append(slot)
        slot.rest()
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


class _Slot:
    """A context whose thread-sensitive work runs on one thread."""

    def __init__(self) -> None:
        self._key = ThreadSensitiveContext()
        self._context = Context()
        self._context.run(SyncToAsync.thread_sensitive_context.set, self._key)
        self._timer: asyncio.TimerHandle | None = None
        self._closing: asyncio.Task[None] | None = None

    def new_context(self) -> Context:
        """Return the context for one job, which contains only the slot."""
        return self._context.copy()

    async def drop_dead(self) -> None:
        """Before a job: see ``connections``. Call this and the others in a context of this slot."""
        await sync_to_async(drop_dead)()

    async def tidy_up(self) -> None:
        """After a job, tidy up the thread's connections."""
        await sync_to_async(tidy_up)()

    def rest(self) -> None:
        """Close its connections if it gets no job for a while. Call this on the loop, after a job."""
        seconds = conf.current().idle_connection_seconds
        if seconds is not None and self._thread() is not None:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._close_unused)

    def wake(self) -> None:
        """Keep its connections, because it gets a job.

        If they are being closed already, the job's work waits for that, because both use the same thread.
        """
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _close_unused(self) -> None:
        loop = asyncio.get_running_loop()
        # The loop itself holds its tasks by weak references only.
        self._closing = loop.create_task(sync_to_async(close_unused)(), context=self.new_context())

    async def close(self) -> None:
        """Close the thread's connections and end the thread."""
        thread = self._thread()
        if thread is not None:
            await sync_to_async(connections.close_all)()
            thread.shutdown(wait=False)

    def has_thread(self) -> bool:
        """Return whether a job has used its thread."""
        return self._thread() is not None

    def _thread(self) -> Executor | None:
        return SyncToAsync.context_to_thread_executor.get(self._key)


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
