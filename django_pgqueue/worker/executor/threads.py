"""Job threads and the event loop: claimed rows go in, outcomes come out.

Waking a thread costs more than running a tiny job, so rows travel in chunks: the whole claim where jobs take
microseconds, one by one where they take milliseconds. Its owner takes the rows of a chunk from the front.
When a job turns out slow, the pump publishes what was done before it and gives the rest of its chunk to
another thread (``rebalance``), so that nobody waits behind it. Taking a row is one atomic operation on a
deque: both may try, one gets it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from functools import partial
from queue import SimpleQueue
from threading import Lock, Thread
from time import monotonic
from typing import TYPE_CHECKING, TypeVar

from django.db import connections

from ...lifecycle.finish import Outcome
from .event_loop import new_loop
from .lanes import Lane

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...lifecycle.claim import Claimed
    from ..waker import Waker
    from .runner import Runner
    from .running_job import RunningJob

__all__ = ["Executor", "Result"]

logger = logging.getLogger(__name__)

# Two job threads may meet their first async task at once.
_LOOP_LOCK = Lock()

CHUNK_SECONDS = 0.005
"""A chunk is worth about this much work; a job that takes longer loses the rest of its chunk."""
PUBLISH_SECONDS = 0.005
"""A thread hands over what it has done at least this often."""

T = TypeVar("T")

Result = tuple["Claimed", Outcome, float]
"""A row, how it went, and how many seconds it ran."""


class _Chunk:
    __slots__ = ("done", "job_since", "rows")

    def __init__(self, rows: Iterable[Claimed]) -> None:
        self.rows = deque(rows)
        self.done: deque[Result] = deque()  # not published yet
        self.job_since = 0.0  # when its present job began; 0: nobody has taken it yet


class Executor:
    """Runs at most ``slots`` jobs at the same time."""

    def __init__(self, runner: Runner, slots: int, waker: Waker) -> None:
        self.slots = slots
        self.results: deque[list[Result]] = deque()
        self._runner = runner
        self._waker = waker
        self._inbox: SimpleQueue[_Chunk | None] = SimpleQueue()
        self._waiting: deque[_Chunk] = deque()  # chunks nobody has taken, as the pump sees them
        self._active: dict[int, _Chunk] = {}  # by the number of the thread
        self._idle = 0
        self._threads: list[Thread] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_thread: Thread | None = None
        self._stopped = False
        self._async_waiting: deque[RunningJob] = deque()
        self._lanes: list[Lane] = []  # free ones
        self._lanes_made = 0

    # -- called by the pump

    def submit(self, rows: list[Claimed], job_seconds: float) -> None:
        """Take rows over. ``job_seconds``: what a job has taken lately, which decides how they are cut up."""
        size = max(1, min(len(rows), int(CHUNK_SECONDS / job_seconds) if job_seconds > 0 else len(rows)))
        for start in range(0, len(rows), size):
            self._put(_Chunk(rows[start : start + size]))

    def rebalance(self) -> bool:
        """Where the present job of a chunk is slow: publish what was done before it, and take the rest of the
        chunk for other threads. False: there is nothing to watch.
        """
        now = monotonic()
        watch = False
        for chunk in list(self._active.values()):
            if chunk.rows or chunk.done:
                watch = True
                if chunk.job_since and now - chunk.job_since > CHUNK_SECONDS:
                    if done := _drain(chunk.done):
                        self.results.append(done)
                    for row in _drain(chunk.rows):
                        self._put(_Chunk([row]))
        return watch

    def take_back(self) -> list[Claimed]:
        """The rows that nobody has started."""
        rows: list[Claimed] = []
        for chunk in [*self._waiting, *self._active.values()]:
            rows += _drain(chunk.rows)
        while self._async_waiting:
            try:
                rows.append(self._async_waiting.popleft().row)
            except IndexError:  # the loop was quicker
                break
        return rows

    def stop(self) -> None:
        """Let the threads go when they are done with their present job. Does not wait for them."""
        for _ in self._threads:
            self._inbox.put(None)
        with _LOOP_LOCK:
            self._stopped = True
            if self._loop is not None and not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._loop.stop)

    def join(self, timeout: float) -> None:
        """Wait for the threads that ``stop`` has told to go, ``timeout`` seconds in all."""
        end = monotonic() + timeout
        for thread in [*self._threads, *filter(None, [self._loop_thread])]:
            thread.join(max(0.0, end - monotonic()))

    # -- the threads

    def _put(self, chunk: _Chunk) -> None:
        self._waiting.append(chunk)
        self._inbox.put(chunk)
        if self._idle < self._inbox.qsize() and len(self._threads) < self.slots:
            number = len(self._threads) + 1
            thread = Thread(target=self._work, name=f"pgqueue-job-{number}", args=(number,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _work(self, number: int) -> None:
        while True:
            self._idle += 1
            chunk = self._inbox.get()
            self._idle -= 1
            if chunk is None:
                break
            self._active[number] = chunk
            self._waiting.remove(chunk)
            self._run_chunk(chunk)
            del self._active[number]
        connections.close_all()

    def _run_chunk(self, chunk: _Chunk) -> None:
        published = monotonic()
        while True:
            try:
                row = chunk.rows.popleft()
            except IndexError:
                break
            began = chunk.job_since = monotonic()
            result = self._run(row)
            ended = monotonic()
            if result is not None:
                chunk.done.append((row, result, ended - began))
            if ended - published > PUBLISH_SECONDS:
                self._publish(_drain(chunk.done))
                published = ended
        chunk.job_since = 0.0
        self._publish(_drain(chunk.done))

    def _run(self, row: Claimed) -> Outcome | None:
        """The outcome, or None where the event loop has taken the job over."""
        try:
            ready = self._runner.prepare(row)
            if isinstance(ready, Outcome):
                return ready
            if self._runner.is_suspect(ready):
                return self._runner.run_apart(ready)
            if self._runner.is_async(row):
                self._hand_over(ready)
                return None
            return self._runner.run(ready)
        except BaseException as error:  # a bug of ours must not cost the thread, nor the job its life
            logger.exception("job %s: the worker failed around its task", row.id)
            return Outcome(
                row.id, row.lease, "release", delay=30.0, reason=f"the worker failed: {error!r}"[:500]
            )

    def _publish(self, done: list[Result]) -> None:
        if done:
            self.results.append(done)
            self._waker.wake()

    # -- the event loop

    def _hand_over(self, running: RunningJob) -> None:
        loop = self._event_loop()
        self._async_waiting.append(running)
        loop.call_soon_threadsafe(self._start_coroutines)

    def _event_loop(self) -> asyncio.AbstractEventLoop:
        with _LOOP_LOCK:
            if self._stopped:
                raise RuntimeError("this worker has stopped")
            if self._loop is None:
                self._loop = new_loop()
                self._loop_thread = Thread(
                    target=self._run_loop, name="pgqueue-event-loop", args=(self._loop,), daemon=True
                )
                self._loop_thread.start()
            return self._loop

    def _run_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        while not self._stopped:
            try:
                loop.run_forever()
            except (SystemExit, KeyboardInterrupt) as error:
                # asyncio lets these out of the loop, if a task that a job has started raises them.
                logger.error("an async task of a job raised %r in the event loop", error)
        loop.run_until_complete(self._close_loop())
        loop.run_until_complete(loop.shutdown_asyncgens())
        with _LOOP_LOCK:
            loop.close()

    async def _close_loop(self) -> None:
        """Cancel what the grace was not long enough for; the pump has given it back."""
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
        for lane in self._lanes:
            await asyncio.create_task(lane.close(), context=lane.new_context())

    def _start_coroutines(self) -> None:
        while self._async_waiting and not self._stopped:
            if not self._lanes:
                if self._lanes_made == self.slots:
                    return
                self._lanes_made += 1
                self._lanes.append(Lane())
            try:
                running = self._async_waiting.popleft()
            except IndexError:  # the pump took it back
                return
            lane = self._lanes.pop()
            coroutine = self._run_async(lane, running)
            task = asyncio.get_running_loop().create_task(coroutine, context=lane.new_context())
            task.add_done_callback(partial(self._coroutine_ended, lane, running))

    async def _run_async(self, lane: Lane, running: RunningJob) -> None:
        await lane.drop_dead()
        try:
            await self._runner.run_async(running)
        finally:
            await lane.tidy_up()

    def _coroutine_ended(self, lane: Lane, running: RunningJob, task: asyncio.Task[None]) -> None:
        self._lanes.append(lane)
        row = running.row
        if self._stopped:
            return  # the pump has given it back
        error = None if task.cancelled() else task.exception()
        outcome = running.outcome
        if outcome is None:  # a bug of ours
            logger.error("job %s: the worker failed around its task", row.id, exc_info=error)
            outcome = Outcome(row.id, row.lease, "release", delay=30.0, reason="the worker failed")
        self._publish([(row, outcome, running.ran)])
        self._start_coroutines()


def _drain(items: deque[T]) -> list[T]:
    """What is in it. The pump and the owner of a chunk may both take: each item goes to one of them."""
    taken: list[T] = []
    while True:
        try:
            taken.append(items.popleft())
        except IndexError:
            return taken
