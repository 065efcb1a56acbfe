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

from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from time import monotonic

from django.db import connections

from ... import conf
from ...formatting import get_logger
from ...jobs.claim import Claimed
from ..waker import Waker
from .calls import Companions
from .connections import close_unused
from .event_loop import EventLoop, drain
from .outcomes import Result
from .runner import Runner

logger = get_logger(__name__)


CHUNK_SECONDS = 0.005  # of work in a chunk, about; a job that takes longer loses the rest of its chunk
PUBLISH_SECONDS = 0.005  # the longest for which a thread collects results before it publishes them


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

    def submit(self, rows: list[Claimed], job_seconds: float) -> None:
        """Run rows. ``job_seconds``: how long jobs took lately, which determines the size of the chunks."""
        companions = Companions(rows)
        async_jobs, rows = self._runner.async_jobs(rows, companions)
        if async_jobs:
            self._loop.submit(async_jobs)
        size = max(1, min(len(rows), int(CHUNK_SECONDS / job_seconds) if job_seconds > 0 else len(rows)))
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
                    if done := drain(chunk.done):
                        self.results.append(done)
                    self._put_first([_Chunk([row], chunk.companions) for row in drain(chunk.rows)])
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
        return waiting + len(active), self._loop.held

    def find_task(self, path: str) -> None:
        """Find a task on a thread of its own, because all others are busy."""

        def find() -> None:
            with suppress(Exception):  # the thread that gets the job reports it
                self._runner.find(path)

        Thread(target=find, name="pgqueue-find-task", daemon=True).start()

    def take_back(self) -> list[Claimed]:
        """Remove and return the rows that have not been started."""
        rows: list[Claimed] = []
        for chunk in [*self._waiting, *self._active.values()]:
            rows += drain(chunk.rows)
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

    def _has_backlog(self) -> bool:
        # A chunk whose rows were taken back stays in the queue, empty, until a thread takes it.
        return self._loop.has_backlog or any(chunk.rows for chunk in list(self._waiting))

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
            except IndexError:  # done, or the producer took the rest
                break
            chunk.job_since = monotonic()
            result = self._runner.perform(row, self._loop.submit, chunk.companions)
            ended = monotonic()
            if result is not None:
                chunk.done.append(result)
            # The frames of a failed task hold this one: with its result in it, they would hold themselves.
            del result
            if ended - published > PUBLISH_SECONDS:
                self._publish(drain(chunk.done))
                published = ended
        chunk.job_since = 0.0
        self._publish(drain(chunk.done))

    def _publish(self, done: list[Result]) -> None:
        if done:
            self.results.append(done)
        if self.has_urgent_results():  # otherwise the next ``rebalance`` comes soon enough
            self._waker.wake()
