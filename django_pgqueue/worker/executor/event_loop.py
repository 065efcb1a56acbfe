"""The event loop of async jobs: it takes jobs, runs them, and publishes their results.

Each job has its own context. In it, ``sync_to_async`` and so Django's ORM use a thread that the job borrows.
Most async jobs never need one, so thousands of them can run at the same time.

``asyncio.to_thread``, and ``sync_to_async`` with ``thread_sensitive=False``, use threads of the loop that
serve all jobs in turn. As it is not known when a job no longer needs such a thread, Django's connections are
closed there after each call.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import Context
from functools import partial
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import Any, ParamSpec, TypeAlias, TypeVar

from asgiref.sync import SyncToAsync, ThreadSensitiveContext
from django.db import connections

from ... import conf
from ...formatting import get_logger
from ...jobs.claim import Claimed
from . import fork
from .connections import close_unused, drop_dead, hold_nothing, left_open, tidy_up
from .outcomes import Result, worker_failed
from .runner import Runner
from .running_job import RunningJob

P = ParamSpec("P")
T = TypeVar("T")
logger = get_logger(__name__)


class EventLoop:
    """Runs at most ``slots`` jobs at the same time. At most ``threads`` of them do sync work. Its own thread
    starts with the first job.

    ``publish`` is called on that thread: with each result, and without one when no job waits for a slot.
    """

    def __init__(
        self, slots: int, threads: int, runner: Runner, publish: Callable[[list[Result]], None]
    ) -> None:
        self._runner = runner
        self._publish = publish
        self.waiting: deque[RunningJob] = deque()  # for a slot
        self._slots = slots
        self._running = 0
        self._sync_threads = SyncThreads(min(slots, threads), shared=slots > threads)
        self._stopped = False
        # Two job threads, or one and the producer, may submit the first async jobs at the same time.
        self._lock = Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: Thread | None = None

    def submit(self, jobs: list[RunningJob]) -> None:
        """Run jobs. Raise ``RuntimeError`` if the loop has stopped."""
        with self._lock:
            if self._stopped:
                raise RuntimeError("this worker has stopped")
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._loop.set_default_executor(_TidyThreads(thread_name_prefix="pgqueue-to-thread"))
                run = partial(self._run_loop, self._loop)
                self._thread = Thread(target=run, name="pgqueue-event-loop", daemon=True)
                self._thread.start()
            self.waiting.extend(jobs)
            self._loop.call_soon_threadsafe(self._start_coroutines)

    @property
    def held(self) -> int:
        """How many jobs run or wait for a slot."""
        return self._running + len(self.waiting)

    def take_back(self) -> list[Claimed]:
        """Remove and return the rows that have not been started."""
        return [running.row for running in drain(self.waiting)]

    def stop(self) -> None:
        """Cancel running jobs and start no more. This does not wait."""
        with self._lock:
            self._stopped = True
            if self._loop is not None and not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._loop.stop)

    def threads(self) -> Iterator[Thread]:
        """Return the threads that ``stop`` ends: the loop's own, which then stops threads of sync work."""
        if self._thread is not None:
            yield self._thread
        yield from self._sync_threads.threads

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
        had_backlog = bool(self.waiting)
        while self.waiting and not self._stopped:
            if self._running >= self._slots:
                return
            try:
                running = self.waiting.popleft()
            except IndexError:  # the producer took it back
                break
            self._running += 1
            thread = JobThread(self._sync_threads)
            # In this context, thread-sensitive calls run on the job's thread, as long as it is used.
            key, context = ThreadSensitiveContext(), Context()
            context.run(SyncToAsync.thread_sensitive_context.set, key)
            SyncToAsync.context_to_thread_executor[key] = thread
            loop = asyncio.get_running_loop()
            task = loop.create_task(self._run_job(thread, running), context=context)
            task.add_done_callback(partial(self._ended, running))
        if had_backlog:
            self._publish([])

    async def _run_job(self, thread: JobThread, running: RunningJob) -> None:
        try:
            await self._runner.run_async(running)
        finally:
            unsaved = await thread.end()
        if running.outcome is not None:
            running.outcome = self._runner.outcomes.tidied(running, running.outcome, unsaved)

    def _ended(self, running: RunningJob, task: asyncio.Task[None]) -> None:
        self._running -= 1
        if self._stopped:
            return  # the producer has given the job back
        row, outcome = running.row, running.outcome
        error = None if task.cancelled() else task.exception()
        if outcome is None:  # this is a bug of the worker
            logger.error("job %s is requeued because of an error in the worker", row.id, exc_info=error)
            outcome = worker_failed(row)
        self._publish([Result(row, outcome, running.ran, False, *running.take_error())])
        self._start_coroutines()


def drain(items: deque[T]) -> list[T]:
    """Remove and return all items. Several threads may do so; each item goes to one of them."""
    taken = []
    with suppress(IndexError):
        while True:
            taken.append(items.popleft())
    return taken


class _TidyThreads(ThreadPoolExecutor):
    def submit(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        def tidied() -> T:
            try:
                value = fork.call_body(call, args, kwargs)
            finally:
                unsaved = tidy_up()
                connections.close_all()
            if unsaved:
                raise left_open(unsaved)
            return value

        return super().submit(tidied)


_Call: TypeAlias = tuple[Future[Any], Callable[[], Any]]


# The threads for the sync work of async jobs: a few of them serve any number of jobs, one job at a time.
# ``sync_to_async`` runs code that must stay on one thread, such as Django's ORM, in the executor of its
# context. Under ASGI each request has its own, and here each job (``JobThread``). If all shared one thread, a
# job that blocks it would hold up the others, and a transaction that one leaves open would contain what the
# others write. A thread and a connection for each of thousands would be too many, so a job borrows a thread:
#
#     no thread --a call--> borrowed, or the job waits in line
#     borrowed --a call ends, others may need a thread, and its connections hold nothing--> given back
#     borrowed --the job ends--> given back
#
# A connection holds something while it is in a transaction, or while the job has left something in its
# session or keeps a cursor (``hold_nothing``), so no job ever works in the transaction of another. A job
# borrows at most one thread, so jobs that wait for one cannot block each other. If there are as many threads
# as slots, each job keeps its own until it ends, and nothing is checked after its calls.
class SyncThreads:
    """At most ``limit`` threads. They start when they are needed. ``shared``: whether jobs lend them."""

    def __init__(self, limit: int, *, shared: bool) -> None:
        self._limit = limit
        self._shared = shared
        self.threads: list[_SyncThread] = []
        self._free: list[_SyncThread] = []  # the one used last comes first: others can close connections
        self._line: deque[JobThread] = deque()
        self._stopped = False
        # Race: a job's call and the end of another one's call may both decide who gets a thread.
        self._lock = Lock()

    def stop(self) -> None:
        """Close the connections of all threads and end them. This does not wait."""
        with self._lock:
            self._stopped = True
            for thread in self.threads:
                thread.inbox.put(None)
            waiting = [call for job in self._line for call in job.calls]
        for future, _ in waiting:
            future.cancel()

    def call(self, job: JobThread, call: _Call) -> None:
        """Run the call on the job's thread, or as soon as there is one."""
        with self._lock:
            if self._stopped:
                raise RuntimeError("this worker has stopped")
            job.calls.append(call)
            if job.thread is None and len(job.calls) == 1:
                self._line.append(job)
                if self._free:
                    self._lend(self._free.pop())
                elif len(self.threads) < self._limit:
                    thread = _SyncThread(f"pgqueue-sync-{len(self.threads) + 1}", self)
                    self.threads.append(thread)
                    thread.start()
                    self._lend(thread)
            else:
                job.pass_calls()

    def end(self, job: JobThread) -> Future[None] | None:
        """Let the job's thread be tidied up and given back. Return a future of that, if it has one."""
        with self._lock:
            job.ended = True
            if job.thread is None or self._stopped:
                return None
            future: Future[None] = Future()
            job.calls.append((future, lambda: None))
            job.pass_calls()
            return future

    def after_call(self, thread: _SyncThread) -> None:
        """Decide what happens to a thread after a call. Called on that thread."""
        job = thread.job
        assert job is not None
        leaves = job.ended or (self._shared and thread.inbox.empty() and hold_nothing())
        if leaves:
            job.unsaved += tidy_up()
        with self._lock:
            thread.calls -= 1
            # Race: the job may have called again, or ended, since the check. Then this comes again.
            if thread.calls or not leaves:
                return
            job.thread = thread.job = None
            if self._line:
                self._lend(thread)
            else:
                self._free.append(thread)

    def _lend(self, thread: _SyncThread) -> None:
        job = self._line.popleft()
        thread.job, job.thread = job, thread
        thread.is_fresh = True
        job.pass_calls()


class JobThread(Executor):
    """The executor for the thread-sensitive calls of one job. It borrows a thread when it needs one.

    An asyncio task that a job leaves behind may call later, and borrows a thread for each call.
    """

    def __init__(self, threads: SyncThreads) -> None:
        self._threads = threads
        self.thread: _SyncThread | None = None
        self.calls: deque[_Call] = deque()  # calls that no thread has got yet
        self.ended = False
        self.unsaved: list[str] = []
        """The databases in which the job has written in a transaction that it has left open."""

    def submit(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Call this on the job's thread."""
        future: Future[T] = Future()
        self._threads.call(self, (future, partial(call, *args, **kwargs)))
        return future

    def pass_calls(self) -> None:
        """Pass its calls to its thread, if it has one. ``SyncThreads`` holds its lock meanwhile."""
        while self.thread is not None and self.calls:
            self.thread.calls += 1
            self.thread.inbox.put(self.calls.popleft())

    async def end(self) -> list[str]:
        """At the end of the job, tidy up its thread and give it back. Return what ``tidy_up`` returns."""
        future = self._threads.end(self)
        if future is not None:
            await asyncio.shield(asyncio.wrap_future(future))
        return self.unsaved


class _SyncThread(Thread):
    """A thread that runs the calls of one job after another."""

    def __init__(self, name: str, threads: SyncThreads) -> None:
        super().__init__(name=name, daemon=True)
        self.inbox: SimpleQueue[_Call | None] = SimpleQueue()
        # These belong to the lock of ``SyncThreads``: whose calls it runs, how many are in the inbox or run,
        # and whether the job has run nothing on it yet.
        self.job: JobThread | None = None
        self.calls = 0
        self.is_fresh = False
        self._sync_threads = threads

    def run(self) -> None:
        """Run calls until asked to end."""
        while (call := self._next()) is not None:
            self._run_call(*call)
            del call  # it holds the arguments
        connections.close_all()

    def _next(self) -> _Call | None:
        try:
            return self.inbox.get(timeout=conf.current().idle_connection_timeout)
        except Empty:
            # Race: a job that borrows it at this moment has nothing on it, and its call comes after this.
            if self.job is None:
                close_unused()
            return self.inbox.get()

    def _run_call(self, future: Future[Any], call: Callable[[], Any]) -> None:
        value = error = None
        runs = future.set_running_or_notify_cancel()
        if runs:
            if self.is_fresh:
                self.is_fresh = False
                drop_dead()
            try:
                value = fork.call_body(call, (), {})
            except BaseException as raised:  # it belongs to the task, even SystemExit
                error = raised
        del call
        self._sync_threads.after_call(self)
        if error is not None:
            future.set_exception(error)
        elif runs:
            future.set_result(value)
        del error  # its traceback contains this frame
