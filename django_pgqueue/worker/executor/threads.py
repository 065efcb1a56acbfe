"""Job threads: they take claimed rows and return results. Async jobs are passed to the event loop.

The first job of each task goes to a thread, because finding its task may import modules, which may take long.
The thread passes it to the event loop if its task is a coroutine function. From then on the task is known,
and the producer passes its jobs to the event loop itself, a whole claim at once.

All threads take their rows from one line, in its order. Waking a thread costs more than running a tiny job,
so a claim wakes one if its jobs take microseconds, and one for each job if they take milliseconds. If a job
turns out to be slow, the producer publishes the results from before it, and wakes others for the rows behind
it (``rebalance``).
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from itertools import chain, repeat
from math import inf
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from time import monotonic

from django.db import connections

from ... import conf
from ...jobs.claim import Claimed
from ..waker import Waker
from .calls import Companions
from .connections import close_unused
from .event_loop import EventLoop, drain
from .outcomes import Result
from .runner import Runner

CALL_SECONDS = 0.005  # of work that is worth a call of a thread, about; a job that takes longer is slow
PUBLISH_SECONDS = 0.005  # the longest for which a thread collects results before it publishes them
BACKLOG_SECONDS = 0.05  # the longest for which results wait while there is enough to run


class _RowThread(Thread):
    """A thread that takes rows until there are none, and then waits for a call."""

    def __init__(self, executor: Executor, number: int) -> None:
        super().__init__(target=executor.work, args=(self,), name=f"pgqueue-job-{number}", daemon=True)
        self.is_busy = True  # from the call on
        self.calls: SimpleQueue[bool] = SimpleQueue()
        self.done: deque[Result] = deque()  # not published yet
        self.job_since = 0.0  # when its current job began; 0: it has none
        self.slow_since = 0.0  # the same, once others were called because of it


class Executor:
    """Runs at most ``slots`` sync and ``async_slots`` (default: as many) async jobs at the same time."""

    def __init__(self, runner: Runner, slots: int, waker: Waker, async_slots: int | None = None) -> None:
        self.slots = slots
        self.results: deque[list[Result]] = deque()
        self._runner = runner
        self._waker = waker
        self._waiting: deque[tuple[Claimed, Companions]] = deque()
        self._few = 0  # rows: when no more wait of the last claim, it is time for the next one
        self._threads: list[_RowThread] = []
        # Race: rows come after a thread has found none, and before it is idle.
        self._lock = Lock()
        self._stopping = False
        self._loop = EventLoop(async_slots or slots, slots, runner, self._publish)

    def submit(self, rows: list[Claimed], job_seconds: float) -> None:
        """Run rows. ``job_seconds``: how long jobs took lately, which says how many threads to call."""
        companions = Companions(rows)
        async_jobs, rows = self._runner.async_jobs(rows, companions)
        if async_jobs:
            self._loop.submit(async_jobs)
        if rows:
            self._waiting.extend(zip(rows, repeat(companions)))
            self._few = max(0, len(self._waiting) - self.slots) // 2
            each = max(1, int(CALL_SECONDS / job_seconds)) if job_seconds > 0 else len(rows)
            self._call(-(-len(rows) // each))

    @property
    def has_backlog(self) -> bool:
        """Whether more than half of the rows that were claimed ahead still wait for a thread, or any for the
        event loop. Nothing else needs haste then, and each turn of the producer takes time from the jobs.
        """
        return len(self._waiting) > self._few or bool(self._loop.waiting)

    def rebalance(self) -> float:
        """If the current job of a thread is slow, publish the results from before it and call other threads
        for the rows that wait. Return the seconds until the next look; ``inf`` if there is nothing to watch.
        """
        now = monotonic()
        for thread in self._threads:
            since = thread.job_since
            if since and now - since > CALL_SECONDS:
                if done := drain(thread.done):
                    self.results.append(done)
                if since != thread.slow_since:
                    thread.slow_since = since
                    self._call(len(self._waiting))
        if self._waiting or self._loop.waiting:
            all_work = len(self._threads) == self.slots and all(thread.is_busy for thread in self._threads)
            return BACKLOG_SECONDS if all_work and self.has_backlog else CALL_SECONDS
        return CALL_SECONDS if any(thread.done for thread in self._threads) else inf

    def has_urgent_results(self) -> bool:
        """Return whether the producer should look at the results now, because threads may run out of work.

        While there is a backlog, results wait for the next ``rebalance``: waking the producer for each result
        would take time from the threads. Race: the row that ends the backlog may be taken at this moment.
        Then the thread that runs it publishes later, and finds no backlog. The event loop does so at once,
        because a thread may have passed it that row while the producer was already asleep.
        """
        return bool(self.results) and not self.has_backlog

    def held(self) -> tuple[int, int]:
        """Return how many sync and async jobs run or wait here. One whose task is not found yet is sync."""
        return len(self._waiting) + sum(thread.job_since > 0 for thread in self._threads), self._loop.held

    def find_task(self, path: str) -> None:
        """Find a task on a thread of its own, because all others are busy."""

        def find() -> None:
            with suppress(Exception):  # the thread that gets the job reports it
                self._runner.find(path)

        Thread(target=find, name="pgqueue-find-task", daemon=True).start()

    def take_back(self) -> list[Claimed]:
        """Remove and return the rows that have not been started."""
        return [row for row, _ in drain(self._waiting)] + self._loop.take_back()

    def stop(self) -> None:
        """Tell the threads to end after their current job. This does not wait for them."""
        self._stopping = True
        for thread in self._threads:
            thread.calls.put(False)
        self._loop.stop()

    def join(self, timeout: float) -> None:
        """Wait for the threads that ``stop`` has asked to end, for ``timeout`` seconds in total."""
        end = monotonic() + timeout
        for thread in chain(self._threads, self._loop.threads()):
            thread.join(max(0.0, end - monotonic()))

    def work(self, thread: _RowThread) -> None:
        """Run rows on this thread until the end."""
        while not self._stopping:
            self._run_rows(thread)
            with self._lock:
                if self._waiting:
                    continue
                thread.is_busy = False
            try:
                thread.calls.get(timeout=conf.current().idle_connection_timeout)
            except Empty:
                close_unused()
                thread.calls.get()
        connections.close_all()

    def _call(self, count: int) -> None:
        """Let ``count`` more threads work, those used last first: others can close their connections."""
        with self._lock:
            idle = [thread for thread in self._threads if not thread.is_busy][:count]
            for thread in idle:
                thread.is_busy = True
                thread.calls.put(True)
        for _ in range(min(self.slots - len(self._threads), count - len(idle))):
            self._threads.append(_RowThread(self, len(self._threads) + 1))
            self._threads[-1].start()

    def _run_rows(self, thread: _RowThread) -> None:
        published = monotonic()
        while not self._stopping:
            try:
                row, companions = self._waiting.popleft()
            except IndexError:
                break
            thread.job_since = monotonic()
            result = self._runner.perform(row, self._loop.submit, companions)
            ended = monotonic()
            if result is not None:
                thread.done.append(result)
            # The frames of a failed task hold this one: with its result in it, they would hold themselves.
            del result
            if ended - published > PUBLISH_SECONDS:
                self._publish(drain(thread.done))
                published = ended
        thread.job_since = 0.0
        self._publish(drain(thread.done))

    def _publish(self, done: list[Result]) -> None:
        if done:
            self.results.append(done)
        if self.has_urgent_results():  # otherwise the next ``rebalance`` comes soon enough
            self._waker.wake()
