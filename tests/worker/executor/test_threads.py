"""Job threads and the event loop: jobs that are handed over run, and jobs that have not started can be taken
back. Async jobs go to the event loop without a thread once their task is known, many at a time.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from functools import partial
from math import inf
from typing import Any

import pytest

from django_pgqueue.jobs.claim import Claimed
from django_pgqueue.jobs.finish import Outcome
from django_pgqueue.tasks.task import find_task
from django_pgqueue.worker import isolation
from django_pgqueue.worker.executor import runner as runner_module
from django_pgqueue.worker.executor.calls import Companions
from django_pgqueue.worker.executor.outcomes import Result
from django_pgqueue.worker.executor.progress import ProgressWriter
from django_pgqueue.worker.executor.runner import Runner
from django_pgqueue.worker.executor.running_job import RunningJob
from django_pgqueue.worker.executor.threads import Executor
from django_pgqueue.worker.started_jobs import StartedJobs
from django_pgqueue.worker.waker import Waker
from tests.app import worker_tasks as tasks
from tests.support.factories import claimed
from tests.support.workers import DEADLINE, until

ASYNC = "tests.app.worker_tasks.ameet"
SYNC = "tests.app.worker_tasks.noop"
SLOTS = 2


class FakeRunner:
    """Runs rows on the threads or on the event loop. Those that a test holds end when it says so."""

    def __init__(self) -> None:
        self.is_async = False
        self.ran: list[int] = []
        self.threads: set[str] = set()
        self._held: dict[int, threading.Event] = {}

    def hold(self, *ids: int) -> None:
        self._held.update({pk: threading.Event() for pk in ids})

    def end(self, *ids: int) -> None:
        for pk in ids or self._held:
            self._held[pk].set()

    def async_jobs(self, rows: list[Claimed], companions: Any) -> tuple[list[RunningJob], list[Claimed]]:
        if not self.is_async:
            return [], rows
        return [RunningJob(row, find_task(ASYNC), 1, "default", ProgressWriter()) for row in rows], []

    def perform(self, row: Claimed, hand_over: Any, companions: Any) -> Result:
        self.ran.append(row.id)
        self.threads.add(threading.current_thread().name)
        assert row.id not in self._held or self._held[row.id].wait(DEADLINE)
        return Result(row, Outcome(row.id, row.lease))

    async def run_async(self, running: RunningJob) -> None:
        self.ran.append(running.row.id)
        while running.row.id in self._held and not self._held[running.row.id].is_set():
            await asyncio.sleep(0.001)
        running.outcome = Outcome(running.row.id, running.row.lease)


@pytest.fixture
def runner() -> FakeRunner:
    return FakeRunner()


@pytest.fixture
def make(runner: FakeRunner) -> Iterator[Callable[..., Executor]]:
    waker = Waker()
    made: list[Executor] = []

    def make(runner: Any = runner, slots: int = SLOTS) -> Executor:
        made.append(Executor(runner, slots, waker))
        return made[-1]

    yield make
    runner.end()
    for executor in made:
        executor.stop()
        executor.join(DEADLINE)
        assert not any(thread.is_alive() for thread in executor._threads)
    waker.close()


@pytest.fixture
def executor(make: Callable[..., Executor]) -> Executor:
    return make()


@pytest.fixture
def woken(executor: Executor, monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[int], int]]:
    """What was finished, and how many rows waited, each time the producer was woken."""
    found: list[tuple[list[int], int]] = []
    waker = executor._waker
    monkeypatch.setattr(waker, "wake", lambda: found.append((finished(executor), len(executor._waiting))))
    return found


def rows(*ids: int, path: str = ASYNC, **changes: Any) -> list[Claimed]:
    return [claimed(pk, path, **changes) for pk in ids]


def ids(items: list[Any]) -> list[int]:
    return [getattr(item, "row", item).id for item in items]


def finished(executor: Executor) -> list[int]:
    return [result.row.id for done in list(executor.results) for result in done]


# -- threads


def test_slow_jobs_are_run_by_several_threads_but_no_more_than_slots(
    executor: Executor, runner: FakeRunner
) -> None:
    runner.hold(1)
    executor.submit(rows(1, 2, 3), 1.0)
    until(lambda: finished(executor) == [2, 3])
    runner.end(1)
    for pk in range(4, 50):
        executor.submit(rows(pk), 1.0)
    until(lambda: sorted(finished(executor)) == list(range(1, 50)))
    assert len(runner.threads) == len(executor._threads) == SLOTS


def test_a_bug_around_a_task_costs_neither_the_thread_nor_the_job(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(row: Claimed) -> None:
        raise SystemExit("ours")

    runner = Runner("default", 1, StartedJobs.private(1))
    monkeypatch.setattr(runner, "_prepare", broken)
    result: Any = runner.perform(claimed(1), lambda running: None, Companions([]))
    assert (result.row.id, result.outcome.kind, result.reported) == (1, "release", False)
    assert "the worker failed" in (result.outcome.reason or "")
    assert "job 1 is requeued because of an error in the worker" in caplog.text


def test_a_thread_that_has_been_called_is_not_idle(
    executor: Executor, runner: FakeRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Race: a thread has received its call, and has not taken its row yet. The next call is not for it."""
    run_rows, go = executor._run_rows, threading.Event()
    runner.hold(2)
    executor.submit(rows(1), 1.0)
    until(lambda: finished(executor) == [1] and not executor._threads[0].is_busy)

    def held(thread: Any) -> None:
        assert thread is not executor._threads[0] or go.wait(DEADLINE)
        run_rows(thread)

    monkeypatch.setattr(executor, "_run_rows", held)
    executor.submit(rows(2), 1.0)
    executor.submit(rows(3), 1.0)
    try:
        until(lambda: 2 in runner.ran)
    finally:
        go.set()
    until(lambda: 3 in runner.ran)


def test_rows_that_come_while_a_thread_becomes_idle_are_not_left(
    executor: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Race: a thread has found no row, and is not idle yet, so that nobody calls it for the new one."""
    executor.slots = 1
    run_rows, later = executor._run_rows, iter([rows(2)])

    def then_a_row_comes(thread: Any) -> None:
        run_rows(thread)
        for more in later:
            executor.submit(more, 1.0)

    monkeypatch.setattr(executor, "_run_rows", then_a_row_comes)
    executor.submit(rows(1), 1.0)
    until(lambda: finished(executor) == [1, 2])


# -- rows that are taken back


@pytest.mark.parametrize("is_async", [False, True])
def test_nobody_has_started_what_is_taken_back_and_it_keeps_nobody_waiting(
    is_async: bool, executor: Executor, runner: FakeRunner
) -> None:
    runner.is_async = is_async
    runner.hold(1, 2)
    executor.submit(rows(1, 2, 3, 4), 1.0)
    executor.submit(rows(5, 6), 1e-6)
    until(lambda: sorted(runner.ran) == [1, 2])
    assert ids(executor.take_back()) == [3, 4, 5, 6]
    assert executor.take_back() == []
    assert executor.rebalance() == inf
    runner.end()
    until(lambda: sorted(finished(executor)) == [1, 2])
    assert sorted(runner.ran) == [1, 2]
    assert executor.has_urgent_results()


@pytest.mark.parametrize("is_async", [False, True])
def test_rows_taken_back_while_they_are_started_are_run_once_or_returned_once(
    is_async: bool, executor: Executor, runner: FakeRunner
) -> None:
    runner.is_async = is_async
    returned: list[int] = []
    for start in range(0, 2_000, 200):
        executor.submit(rows(*range(start, start + 200)), 1e-6)
        until(lambda: bool(runner.ran))
        returned += ids(executor.take_back()) if is_async or start == 1_800 else []
    until(lambda: len(finished(executor)) + len(returned) == 2_000)
    assert sorted(runner.ran + returned) == list(range(2_000))


# -- when the producer is woken


def test_the_producer_is_woken_when_threads_may_run_out_of_work(
    executor: Executor, runner: FakeRunner, woken: list[Any]
) -> None:
    runner.hold(1, 2, 3)
    executor.submit(rows(1, 2, 3), 1.0)  # two threads, so the last job waits
    until(lambda: len(runner.ran) == 2)
    assert executor.rebalance() < inf  # the producer looks again soon
    executor.results.append([])
    assert not executor.has_urgent_results()
    runner.end(1)
    until(lambda: len(runner.ran) == 3)
    assert woken == []  # the first result came while the last job was waiting
    until(lambda: executor.rebalance() == inf)
    assert executor.has_urgent_results()
    runner.end(2, 3)
    until(lambda: sorted(finished(executor)) == [1, 2, 3])
    until(lambda: woken, what="the producer is woken")  # once, if both results were there by then


def test_results_wait_while_async_jobs_wait_and_the_last_one_that_starts_ends_this(
    executor: Executor, runner: FakeRunner, woken: list[Any]
) -> None:
    runner.is_async = True
    runner.hold(1, 2, 3, 4)
    executor.submit(rows(1, 2, 3, 4), 1.0)
    until(lambda: runner.ran == [1, 2])
    assert executor.rebalance() < inf  # the producer looks again soon
    runner.end(1)
    until(lambda: runner.ran == [1, 2, 3])
    assert finished(executor) == [1]
    assert not executor.has_urgent_results()
    assert woken == []
    runner.end(2)
    # The producer may be asleep since before this backlog began. So it is woken although no result is new.
    until(lambda: runner.ran == [1, 2, 3, 4])
    assert [done for done, _ in woken] == [[1, 2]]
    assert executor.has_urgent_results()
    assert executor.rebalance() == inf
    runner.end(3)
    until(lambda: len(woken) == 2, what="the producer is woken")
    runner.end(4)
    until(lambda: len(woken) == 3, what="the producer is woken")


# -- which jobs need a thread


def new_runner(*paths: str, isolate: Any = None) -> Runner:
    """Return a runner that has found these tasks, as a job thread does. No job runs."""
    runner = Runner("default", 1, StartedJobs.private(SLOTS), isolate)
    for path in paths:
        assert isinstance(runner._prepare(claimed(1, path)), RunningJob)
    return runner


@pytest.mark.parametrize(("known", "given", "ready", "others"), [
    pytest.param([], rows(1, 2), [], [1, 2], id="the task must be found first"),
    pytest.param(
        [ASYNC, SYNC], [*rows(1), *rows(2, path=SYNC), *rows(3)], [1, 3], [2], id="coroutine functions"
    ),
    pytest.param(
        [ASYNC], [*rows(1, path="tests.app.worker_tasks.anote"), *rows(2)], [], [1, 2],
        id="no job overtakes one whose task must be found first",
    ),
    pytest.param(
        [ASYNC], [*rows(1, expired=True), *rows(2, crash_count=1), *rows(3)], [3], [1, 2],
        id="a thread decides about expired and crashed jobs",
    ),
])  # fmt: skip
def test_which_jobs_need_no_thread(
    known: list[str], given: list[Claimed], ready: list[int], others: list[int]
) -> None:
    runner = new_runner(*known, isolate=partial(isolation.run, 0, ""))
    found, rest = runner.async_jobs(given, Companions([]))
    assert (ids(found), ids(rest)) == (ready, others)
    assert all(job.task is find_task(ASYNC) for job in found)


def test_a_slow_import_holds_up_neither_the_producer_nor_the_event_loop(
    make: Callable[..., Executor], monkeypatch: pytest.MonkeyPatch
) -> None:
    importing, imported = threading.Event(), threading.Event()

    def find_slowly(path: str) -> Any:
        importing.set()
        assert imported.wait(DEADLINE)
        return find_task(path)

    executor = make(new_runner(ASYNC))
    monkeypatch.setattr(runner_module, "find_task", find_slowly)
    executor.submit(rows(1, path="tests.app.worker_tasks.ahold", args='["slow"]'), 1.0)
    assert importing.wait(DEADLINE)
    executor.submit(rows(2, 3, args='["two", 2]'), 1.0)
    until(lambda: sorted(finished(executor)) == [2, 3])
    tasks.gate("slow").set()
    imported.set()
    until(lambda: sorted(finished(executor)) == [1, 2, 3])
