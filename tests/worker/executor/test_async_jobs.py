"""Async jobs go to the event loop without a thread once their task is known, many at a time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from functools import partial
from math import inf
from typing import Any

import pytest

from django_pgqueue import enqueue_many
from django_pgqueue.jobs.claim import Claimed
from django_pgqueue.jobs.finish import Outcome
from django_pgqueue.models import Job
from django_pgqueue.tasks.task import find_task
from django_pgqueue.worker import isolation
from django_pgqueue.worker.executor import runner as runner_module
from django_pgqueue.worker.executor.calls import Companions
from django_pgqueue.worker.executor.runner import Runner
from django_pgqueue.worker.executor.running_job import RunningJob
from django_pgqueue.worker.executor.threads import Executor
from django_pgqueue.worker.started_jobs import StartedJobs
from django_pgqueue.worker.waker import Waker
from tests.app import worker_tasks as tasks
from tests.support.rows import claimed
from tests.support.workers import DEADLINE, until, working

ASYNC = "tests.app.worker_tasks.ameet"
SYNC = "tests.app.worker_tasks.noop"
SLOTS = 2


class Gates:
    """Stands in for the runner: each job waits on the event loop until the test lets it end."""

    def __init__(self) -> None:
        self.ran: list[int] = []
        self._gates: dict[int, asyncio.Event] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self.are_open = False

    def async_jobs(self, rows: list[Claimed], companions: Any) -> tuple[list[RunningJob], list[Claimed]]:
        return [RunningJob(row, find_task(ASYNC), 1, "default") for row in rows], []

    def perform(self, row: Claimed, hand_over: Any, companions: Any) -> None:
        raise AssertionError

    async def run_async(self, running: RunningJob) -> None:
        self._loop = asyncio.get_running_loop()
        gate = self._gates[running.row.id] = asyncio.Event()
        self.ran.append(running.row.id)
        if not self.are_open:
            await gate.wait()
        running.outcome = Outcome(running.row.id, running.row.lease)

    def end(self, pk: int) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._gates[pk].set)


@pytest.fixture
def gates() -> Gates:
    return Gates()


@pytest.fixture
def make_executor() -> Iterator[Callable[[Any], Executor]]:
    waker = Waker()
    made: list[Executor] = []

    def make(runner: Any) -> Executor:
        made.append(Executor(runner, SLOTS, waker))
        return made[-1]

    yield make
    for executor in made:
        executor.stop()
        executor.join(DEADLINE)
    waker.close()


def new_runner(isolation: Any = None) -> Runner:
    return Runner("default", 1, StartedJobs.private(SLOTS), isolation)


def rows(*ids: int, path: str = ASYNC, **changes: Any) -> list[Claimed]:
    return [claimed(pk, path, **changes) for pk in ids]


def ids(items: list[Any]) -> list[int]:
    return [getattr(item, "row", item).id for item in items]


def finished(executor: Executor) -> list[int]:
    return [result.row.id for done in list(executor.results) for result in done]


def meet(runner: Runner, *paths: str) -> None:
    """Let the runner find these tasks, as a job thread does. No job runs."""
    for path in paths:
        assert isinstance(runner._prepare(claimed(1, path)), RunningJob)


# -- which jobs need a thread


def test_jobs_of_a_coroutine_task_are_ready_once_it_was_found() -> None:
    runner = new_runner()
    assert runner.async_jobs(rows(1, 2), Companions([])) == ([], rows(1, 2))
    meet(runner, ASYNC, SYNC)
    given = [*rows(1), *rows(2, path=SYNC), *rows(3)]
    ready, others = runner.async_jobs(given, Companions([]))
    assert (ids(ready), ids(others)) == ([1, 3], [2])
    assert {job.task for job in ready} == {find_task(ASYNC)}


def test_a_thread_decides_about_expired_and_crashed_jobs() -> None:
    runner = new_runner(partial(isolation.run, 0, ""))
    meet(runner, ASYNC)
    given = [*rows(1, expired=True), *rows(2, crash_count=1), *rows(3)]
    ready, others = runner.async_jobs(given, Companions([]))
    assert (ids(ready), ids(others)) == ([3], [1, 2])


def test_no_job_overtakes_one_whose_task_must_be_found_first() -> None:
    runner = new_runner()
    meet(runner, ASYNC)
    given = [*rows(1, path="tests.app.worker_tasks.anote"), *rows(2)]
    assert runner.async_jobs(given, Companions([])) == ([], given)


def test_a_slow_import_holds_up_neither_the_producer_nor_the_event_loop(
    make_executor: Callable[[Any], Executor], monkeypatch: pytest.MonkeyPatch
) -> None:
    importing, imported = threading.Event(), threading.Event()

    def find_slowly(path: str) -> Any:
        importing.set()
        assert imported.wait(DEADLINE)
        return find_task(path)

    runner = new_runner()
    meet(runner, ASYNC)
    executor = make_executor(runner)
    monkeypatch.setattr(runner_module, "find_task", find_slowly)
    tasks.reset()
    executor.submit(rows(1, path="tests.app.worker_tasks.ahold", args='["slow"]'), 1.0)
    assert importing.wait(DEADLINE)
    executor.submit(rows(2, 3, args='["two", 2]'), 1.0)
    until(lambda: sorted(finished(executor)) == [2, 3])
    tasks.gate("slow").set()
    imported.set()
    until(lambda: sorted(finished(executor)) == [1, 2, 3])


@pytest.mark.django_db(transaction=True)
def test_a_worker_passes_a_whole_claim_to_the_event_loop() -> None:
    with working(threads=10) as worker:
        enqueue_many([tasks.ameet.bind("first", 1)])
        until(lambda: Job.objects.filter(status="done").count() == 1)
        threads = list(worker.producer._executor._threads)
        enqueue_many(tasks.ameet.bind("ten", 10) for _ in range(10))
        until(lambda: Job.objects.filter(status="done").count() == 11)
        assert worker.producer._executor._threads == threads


# -- what waits for a slot of the event loop


def test_what_waits_for_the_event_loop_can_be_taken_back(
    gates: Gates, make_executor: Callable[[Any], Executor]
) -> None:
    executor = make_executor(gates)
    executor.submit(rows(1, 2, 3, 4, 5), 1.0)
    until(lambda: gates.ran == [1, 2])
    assert ids(executor.take_back()) == [3, 4, 5]
    assert executor.take_back() == []
    assert executor.rebalance() == inf
    gates.end(1)
    gates.end(2)
    until(lambda: sorted(finished(executor)) == [1, 2])
    assert gates.ran == [1, 2]


def test_jobs_taken_back_while_the_event_loop_takes_them_are_run_once_or_returned_once(
    gates: Gates, make_executor: Callable[[Any], Executor]
) -> None:
    gates.are_open = True
    executor = make_executor(gates)
    returned: list[int] = []
    for start in range(0, 10_000, 1_000):
        executor.submit(rows(*range(start, start + 1_000)), 1e-6)
        until(lambda: bool(gates.ran))
        returned += ids(executor.take_back())
    until(lambda: len(finished(executor)) + len(returned) == 10_000)
    assert sorted(gates.ran + returned) == list(range(10_000))
    assert returned
    assert gates.ran


def test_results_wait_while_jobs_wait_and_the_last_one_that_starts_ends_this(
    gates: Gates, make_executor: Callable[[Any], Executor], monkeypatch: pytest.MonkeyPatch
) -> None:
    executor = make_executor(gates)
    woken: list[tuple[list[int], list[int]]] = []
    monkeypatch.setattr(executor._waker, "wake", lambda: woken.append((finished(executor), list(gates.ran))))
    executor.submit(rows(1, 2, 3, 4), 1.0)
    until(lambda: gates.ran == [1, 2])
    assert executor.rebalance() < inf  # the producer looks again soon
    gates.end(1)
    until(lambda: gates.ran == [1, 2, 3])
    assert finished(executor) == [1]
    assert not executor.has_urgent_results()
    assert woken == []
    gates.end(2)
    # The producer may be asleep since before this backlog began. So it is woken although no result is new.
    until(lambda: gates.ran == [1, 2, 3, 4])
    assert [done for done, _ in woken] == [[1, 2]]
    assert executor.has_urgent_results()
    assert executor.rebalance() == inf
    gates.end(3)
    until(lambda: len(woken) == 2, what="the producer is woken")
    gates.end(4)
    until(lambda: len(woken) == 3, what="the producer is woken")
