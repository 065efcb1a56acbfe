"""The threads for the sync work of async jobs: a few of them serve any number of jobs, one job at a time.

``sync_to_async`` runs code that must stay on one thread, such as Django's ORM, in the executor of its
context. Under ASGI each request has its own. Here each job has its own: a ``JobThread``. Without it, all jobs
of the process would share a single thread: a job that blocks it would hold up all the others, and a
transaction that one job leaves open would contain what the others write. A thread and a connection for each
of thousands of jobs would be too many, so a job borrows a thread:

    no thread --its first call--> borrowed, or the job waits in line
    borrowed --the job ends--> tidied up, then given to the first in line
    borrowed --a call ends, others may need a thread, and its connections hold nothing--> tidied up, parked
    parked --the job calls again--> borrowed
    parked --another job calls--> borrowed by that one; the first one borrows another thread for its next call

A connection holds something while it is in a transaction, or while the job has left something in its session
or keeps a cursor (``connections.hold_nothing``). So no job ever works in the transaction of another. A job
borrows at most one thread, so jobs that wait for one cannot block each other.

Threads are only parked if there are fewer of them than slots for jobs. Otherwise each job has its own until
it ends, and nothing is checked after its calls.
"""

from __future__ import annotations

import asyncio
from collections import deque
from concurrent.futures import Executor, Future
from functools import partial
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar

from django.db import connections

from ... import conf
from . import fork
from .connections import close_unused, drop_dead, hold_nothing, tidy_up

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
T = TypeVar("T")


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
