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
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextvars import Context
from functools import partial
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from time import monotonic
from typing import Any, NamedTuple, ParamSpec, TypeVar

from asgiref.sync import SyncToAsync, ThreadSensitiveContext, sync_to_async
from django.db import connections

from ... import conf
from ...formatting import get_logger
from ...jobs.claim import Claimed
from ...jobs.payloads import load
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

    ``publish`` is called on the loop's thread: with each result, and
    without one when the last job that waited for a slot has started.
    """

    def __init__(
        self,
        slots: int,
        threads: int,
        runner: Runner,
        publish: Callable[[list[Result]], None],
    ) -> None:
        self._runner = runner
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
            await self._runner.run_async(running)
        finally:
            unsaved = await thread.end()
        if running.outcome is not None:
            running.outcome = self._runner.outcomes.tidied(running, running.outcome, unsaved)

    def _ended(self, running: RunningJob, task: asyncio.Task[None]) -> None:
        self._running -= 1
        row = running.row
        if self._stopped:
            return  # the producer has given the job back
        error = None if task.cancelled() else task.exception()
        outcome = running.outcome
        if outcome is None:  # this is a bug of the worker
            logger.error("job %s is requeued because of an error in the worker", row.id, exc_info=error)
            outcome = worker_failed(row)
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
        value = fork.call_body(call, args, kwargs)
    finally:
        unsaved = tidy_up()
        connections.close_all()
    if unsaved:
        raise left_open(unsaved)
    return value


class PayloadReader:
    """Reads the payloads of async jobs that start in the same turn of the event loop, on one more thread.

    ``borrow`` returns a thread, and a context in which sync work runs on it.
    """

    def __init__(self, borrow: Callable[[], tuple[JobThread, Context]]) -> None:
        self._borrow = borrow
        self._wanted: dict[tuple[Any, str], list[tuple[int, asyncio.Future[dict[int, Any] | None]]]] = {}
        self._reads: set[asyncio.Task[None]] = set()

    async def read(self, job_id: int, model: Any, alias: str) -> dict[int, Any] | None:
        """Return payloads with that of a job. None if they could not be read: then the job should try it
        itself, and fail with an exception of its own.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[dict[int, Any] | None] = loop.create_future()
        if not self._wanted:
            loop.call_soon(self._start)  # after the jobs that start together with this one
        self._wanted.setdefault((model, alias), []).append((job_id, future))
        return await future

    def _start(self) -> None:
        wanted, self._wanted = self._wanted, {}
        for (model, alias), group in wanted.items():
            thread, context = self._borrow()
            reading = self._read(thread, model, alias, group)
            task = asyncio.get_running_loop().create_task(reading, context=context)
            self._reads.add(task)
            task.add_done_callback(self._reads.discard)

    async def _read(self, thread: JobThread, model: Any, alias: str, group: list[Any]) -> None:
        found = None
        try:
            found = await sync_to_async(load)(model, alias, [job_id for job_id, _ in group])
        except Exception:  # each job tries it again and reports what it gets
            found = None
        finally:
            for _, future in group:
                if not future.done():  # a job may have been cancelled
                    future.set_result(found)
            await thread.end()


# ----------------------------------------------------------------------------
# The threads for the sync work of async jobs: a few of them serve any number of jobs, one job at a time.
#
# ``sync_to_async`` runs code that must stay on one thread, such as Django's ORM, in the executor of its
# context. Under ASGI each request has its own, and here each job (``JobThread``). If all shared one thread,
# a job that blocks it would hold up the others, and a transaction that one leaves open would contain what the
# others write. A thread and a connection for each of thousands would be too many, so a job borrows a thread:
#
#     no thread --its first call--> borrowed, or the job waits in line
#     borrowed --the job ends--> tidied up, then given to the first in line
#     borrowed --a call ends, others may need a thread, and its connections hold nothing--> tidied up, parked
#     parked --the job calls again--> borrowed
#     parked --another job calls--> borrowed by that one; the first one borrows another for its next call
#
# A connection holds something while it is in a transaction, or while the job has left something in its
# session or keeps a cursor (``hold_nothing``). So no job ever works in the transaction of another. A job
# borrows at most one thread, so jobs that wait for one cannot block each other.
#
# Threads are only parked if there are fewer of them than slots for jobs. Otherwise each job has its own until
# it ends, and nothing is checked after its calls.


class _Call(NamedTuple):
    future: Future[Any]
    call: Callable[[], Any]


class SyncThreads:
    """At most ``limit`` threads. They start when they are needed. ``shared``: whether to park them."""

    def __init__(self, limit: int, *, shared: bool) -> None:
        self._to_make = limit
        self._shared = shared
        self._threads: list[_SyncThread] = []
        self._free: list[_SyncThread] = []  # the one used last comes first: others can close connections
        self._parked: dict[_SyncThread, None] = {}  # in the order in which they were parked
        self._line: deque[JobThread] = deque()
        self._stopped = False
        # Race: a job's call and the end of another one's call may both decide who gets a thread.
        self._lock = Lock()

    def stop(self) -> None:
        """Close the connections of all threads and end them. This does not wait."""
        with self._lock:
            self._stopped = True
            for thread in self._threads:
                thread.inbox.put(None)
            waiting = [call for job in self._line for call in job.calls]
        for call in waiting:
            call.future.cancel()

    def join(self, timeout: float) -> None:
        """Wait for the threads that ``stop`` has told to end, for ``timeout`` seconds in total."""
        end = monotonic() + timeout
        for thread in self._threads:
            thread.join(max(0.0, end - monotonic()))

    # -- called by ``JobThread``

    def call(self, job: JobThread, call: _Call) -> None:
        """Run the call on the job's thread, or as soon as there is one."""
        with self._lock:
            if self._stopped:
                raise RuntimeError("this worker has stopped")
            job.calls.append(call)
            if job.thread is not None:
                self._parked.pop(job.thread, None)
                self._pass_calls(job, job.thread)
            elif (thread := self._take()) is not None:
                self._lend(thread, job)
            elif len(job.calls) == 1:
                self._line.append(job)

    def end(self, job: JobThread) -> Future[None] | None:
        """Give the job's thread back. Return a future of that if the thread must be tidied up before."""
        with self._lock:
            job.ended = True
            thread = job.thread
            if thread is None or self._stopped:
                return None
            if thread in self._parked:
                del self._parked[thread]
                self._give_back(thread)
                return None
            future: Future[None] = Future()
            job.calls.append(_Call(future, _nothing))
            self._pass_calls(job, thread)
            return future

    # -- called by the threads

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
            if job.ended or self._line:
                self._give_back(thread)
            else:
                self._parked[thread] = None

    def is_idle(self, thread: _SyncThread) -> bool:
        """Return whether the connections of a thread hold nothing of a job."""
        with self._lock:
            return thread.job is None or thread in self._parked

    # -- the rest is called with the lock held

    def _take(self) -> _SyncThread | None:
        if self._free:
            return self._free.pop()
        if self._to_make:
            self._to_make -= 1
            thread = _SyncThread(f"pgqueue-sync-{len(self._threads) + 1}", self)
            self._threads.append(thread)
            thread.start()
            return thread
        for thread in self._parked:
            del self._parked[thread]
            self._part(thread)
            return thread
        return None

    def _give_back(self, thread: _SyncThread) -> None:
        self._part(thread)
        if self._line:
            self._lend(thread, self._line.popleft())
        else:
            self._free.append(thread)

    def _lend(self, thread: _SyncThread, job: JobThread) -> None:
        thread.job, job.thread = job, thread
        thread.is_fresh = True
        self._pass_calls(job, thread)

    def _pass_calls(self, job: JobThread, thread: _SyncThread) -> None:
        while job.calls:
            thread.calls += 1
            thread.inbox.put(job.calls.popleft())

    def _part(self, thread: _SyncThread) -> None:
        if thread.job is not None:
            thread.job.thread = None
        thread.job = None


class JobThread(Executor):
    """The executor for the thread-sensitive calls of one job. It borrows a thread when it needs one.

    An asyncio task that a job leaves behind may call after the job's end. It then borrows a thread for each
    call.
    """

    def __init__(self, threads: SyncThreads) -> None:
        self._threads = threads
        self.thread: _SyncThread | None = None
        self.calls: deque[_Call] = deque()
        """Those that no thread has got yet."""
        self.ended = False
        self.unsaved: list[str] = []
        """The databases in which the job has written in a transaction that it has left open."""

    def submit(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Call this on the job's thread."""
        future: Future[T] = Future()
        self._threads.call(self, _Call(future, partial(call, *args, **kwargs)))
        return future

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
        self.job: JobThread | None = None
        """Whose calls it runs. This and the next two belong to the lock of ``SyncThreads``."""
        self.calls = 0
        """Those in the inbox and the one that runs."""
        self.is_fresh = False
        """Whether the job has run nothing on it yet."""
        self._sync_threads = threads

    def run(self) -> None:
        """Run calls until told to end."""
        while (call := self._next()) is not None:
            self._run_call(*call)
            del call  # it holds the arguments
        connections.close_all()

    def _next(self) -> _Call | None:
        try:
            return self.inbox.get(timeout=conf.current().idle_connection_timeout)
        except Empty:
            # Race: a job that borrows it at this moment has nothing on it, and its call comes after this.
            if self._sync_threads.is_idle(self):
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


def _nothing() -> None:
    """Tidying up is what matters, and comes after this."""
