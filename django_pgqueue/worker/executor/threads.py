"""Job threads: they take claimed rows and return results. Async jobs are passed to the event loop.

The first job of each task goes to a thread, because finding its task may import modules, which may take long.
The thread passes it to the event loop if its task is a coroutine function. From then on the task is known,
and the producer passes its jobs to the event loop itself, a whole claim at once.

Waking a thread costs more than running a tiny job, so rows are passed in chunks: a whole claim at once if
jobs take microseconds, and one by one if they take milliseconds. The thread that owns a chunk takes its rows
from the front. If a job turns out to be slow, the producer publishes the results from before it and puts the
rest of its chunk before the chunks that no thread has taken (``rebalance``), so that no job waits behind it,
and jobs start in their order. Taking a row is one atomic operation on a deque: both may try, and one gets it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import Context
from functools import partial
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from time import monotonic
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from asgiref.sync import SyncToAsync, ThreadSensitiveContext
from django.db import connections

from ... import conf
from ...formatting import get_logger
from . import fork
from .connections import close_unused, left_open, tidy_up
from .outcomes import Result, worker_failed
from .payloads import Companions, PayloadReader
from .sync_threads import JobThread, SyncThreads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ...jobs.claim import Claimed
    from ..waker import Waker
    from .runner import Runner
    from .running_job import RunningJob

logger = get_logger(__name__)


CHUNK_SECONDS = 0.005
"""The amount of work in a chunk, about. A job that takes longer loses the rest of its chunk."""
PUBLISH_SECONDS = 0.005
"""The longest time for which a thread collects results before it publishes them."""


class _Chunk:
    __slots__ = ("companions", "done", "job_since", "rows")

    def __init__(self, rows: Iterable[Claimed], companions: Companions) -> None:
        self.rows = deque(rows)
        self.done: deque[Result] = deque()  # not published yet
        self.companions = companions
        self.job_since = 0.0  # when its current job began; 0: no thread has taken the chunk yet


class Executor:
    """Runs at most ``slots`` sync and ``async_slots`` (default: as many) async jobs at the same time."""

    def __init__(self, runner: Runner, slots: int, waker: Waker, async_slots: int | None = None) -> None:
        self.slots = slots
        self.results: deque[list[Result]] = deque()
        self._runner = runner
        self._waker = waker
        self._calls: SimpleQueue[bool] = SimpleQueue()  # True for each waiting chunk; False ends a thread
        self._waiting: deque[_Chunk] = deque()  # the chunks that no thread has taken
        # Race: a thread takes the first chunk while the producer puts others before it, or counts both.
        self._taking = Lock()
        self._active: dict[int, _Chunk] = {}  # by the number of the thread
        self._threads: list[Thread] = []
        self._loop = EventLoop(async_slots or slots, slots, runner, self._publish)

    # -- called by the producer

    def submit(self, rows: list[Claimed], job_seconds: float) -> None:
        """Run rows. ``job_seconds``: how long jobs took lately, which determines the size of the chunks."""
        async_jobs, rows = self._runner.async_jobs(rows)
        if async_jobs:
            self._loop.submit(async_jobs)
        size = max(1, min(len(rows), int(CHUNK_SECONDS / job_seconds) if job_seconds > 0 else len(rows)))
        companions = Companions(rows)
        for start in range(0, len(rows), size):
            self._waiting.append(_Chunk(rows[start : start + size], companions))
            self._call()

    def rebalance(self) -> bool:
        """If the current job of a chunk is slow, publish the results from before it and give the rest of the
        chunk to other threads. Return False if there is nothing to watch.
        """
        now = monotonic()
        watch = False
        for chunk in list(self._active.values()):
            if chunk.rows or chunk.done:
                watch = True
                if chunk.job_since and now - chunk.job_since > CHUNK_SECONDS:
                    if done := _drain(chunk.done):
                        self.results.append(done)
                    self._put_first([_Chunk([row], chunk.companions) for row in _drain(chunk.rows)])
        return watch or self._has_backlog()

    def has_urgent_results(self) -> bool:
        """Return whether the producer should look at the results now, because threads may run out of work.

        While rows wait for a thread or the event loop, results wait for the next ``rebalance``: waking the
        producer for each chunk would take time from the threads. Race: the last row may be taken at this
        moment. Then the thread that runs it publishes later, and finds no backlog. The event loop does so
        at once, because a thread may have passed it that row while the producer was already asleep.
        """
        return bool(self.results) and not self._has_backlog()

    def held(self) -> tuple[int, int]:
        """Return how many sync jobs and how many async jobs run or wait here. One whose task must be found
        first counts as sync.
        """
        active = list(self._active.values())
        waiting = sum(len(chunk.rows) for chunk in [*self._waiting, *active])
        return waiting + len(active), self._loop.held()

    def find_task(self, path: str) -> None:
        """Find a task on a thread of its own, because all others are busy."""
        Thread(target=self._find, name="pgqueue-find-task", args=(path,), daemon=True).start()

    def take_back(self) -> list[Claimed]:
        """Remove and return the rows that have not been started."""
        rows: list[Claimed] = []
        for chunk in [*self._waiting, *self._active.values()]:
            rows += _drain(chunk.rows)
        return rows + self._loop.take_back()

    def stop(self) -> None:
        """Tell the threads to end after their current job. This does not wait for them."""
        for _ in self._threads:
            self._calls.put(False)
        self._loop.stop()

    def join(self, timeout: float) -> None:
        """Wait for the threads that ``stop`` has told to end, for ``timeout`` seconds in total."""
        end = monotonic() + timeout
        for thread in self._threads:
            thread.join(max(0.0, end - monotonic()))
        self._loop.join(max(0.0, end - monotonic()))

    # -- the threads

    def _put_first(self, chunks: list[_Chunk]) -> None:
        with self._taking:
            self._waiting.extendleft(reversed(chunks))
        for _ in chunks:
            self._call()

    def _call(self) -> None:
        self._calls.put(True)
        # Race: a thread that has received its call is idle until it takes its chunk. So chunks are counted
        # and not calls, or else the next chunk might be taken for its, and wait although slots are free.
        with self._taking:
            idle = len(self._threads) - len(self._active)
            is_short = idle < len(self._waiting)
        if is_short and len(self._threads) < self.slots:
            number = len(self._threads) + 1
            thread = Thread(target=self._work, name=f"pgqueue-job-{number}", args=(number,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _work(self, number: int) -> None:
        while self._next_call():
            with self._taking:
                chunk = self._active[number] = self._waiting[0]
                self._waiting.popleft()
            self._run_chunk(chunk)
            del self._active[number]
        connections.close_all()

    def _find(self, path: str) -> None:
        with suppress(Exception):  # the thread that gets the job reports it
            self._runner.find(path)

    def _has_backlog(self) -> bool:
        # A chunk whose rows were taken back stays in the queue, empty, until a thread takes it.
        return self._loop.has_backlog() or any(chunk.rows for chunk in list(self._waiting))

    def _next_call(self) -> bool:
        try:
            return self._calls.get(timeout=conf.current().idle_connection_timeout)
        except Empty:
            close_unused()
            return self._calls.get()

    def _run_chunk(self, chunk: _Chunk) -> None:
        published = monotonic()
        while True:
            try:
                row = chunk.rows.popleft()
            except IndexError:
                break
            chunk.job_since = monotonic()
            result = self._runner.perform(row, self._loop.submit, chunk.companions)
            ended = monotonic()
            if result is not None:
                chunk.done.append(result)
            # The frames of a failed task hold this one: with its result in it, they would hold themselves.
            del result
            if ended - published > PUBLISH_SECONDS:
                self._publish(_drain(chunk.done))
                published = ended
        chunk.job_since = 0.0
        self._publish(_drain(chunk.done))

    def _publish(self, done: list[Result]) -> None:
        if done:
            self.results.append(done)
        if self.has_urgent_results():  # otherwise the next ``rebalance`` comes soon enough
            self._waker.wake()


def _drain(items: deque[T]) -> list[T]:
    """Remove and return all items. The producer and a chunk's owner may both do so; one gets each item."""
    taken: list[T] = []
    while True:
        try:
            taken.append(items.popleft())
        except IndexError:
            return taken


# ----------------------------------------------------------------------------
# The event loop of async jobs: it takes jobs, runs them, and publishes their results.
#
# Each job has its own context. In it, ``sync_to_async`` and so Django's ORM use a thread that the job
# borrows (``sync_threads``). Most async jobs never need one, so thousands of them can run at the same time.
#
# ``asyncio.to_thread``, and ``sync_to_async`` with ``thread_sensitive=False``, use threads of the loop that
# serve all jobs in turn. As it is not known when a job no longer needs such a thread, Django's connections
# are closed there after each call.

P = ParamSpec("P")
T = TypeVar("T")


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
