"""Job threads: jobs that are handed over run, and jobs that have not started can be taken back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from math import inf
from typing import Any

import pytest

from django_pgqueue.jobs.claim import Claimed
from django_pgqueue.jobs.finish import Outcome
from django_pgqueue.worker.executor import threads as threads_module
from django_pgqueue.worker.executor.calls import Companions
from django_pgqueue.worker.executor.outcomes import Result
from django_pgqueue.worker.executor.runner import Runner
from django_pgqueue.worker.executor.threads import BACKLOG_SECONDS, CALL_SECONDS, Executor
from django_pgqueue.worker.started_jobs import StartedJobs
from django_pgqueue.worker.waker import Waker
from tests.support.rows import claimed
from tests.support.workers import DEADLINE, until


class FakeRunner:
    """Runs a row by calling the function that the test has set for it."""

    def __init__(self) -> None:
        self.calls: dict[int, Callable[[], Any]] = {}
        self.ran: list[int] = []
        self.threads: set[str] = set()

    async def run_async(self, running: Any) -> None:
        raise AssertionError

    def async_jobs(self, rows: list[Claimed], companions: Any) -> tuple[list[Any], list[Claimed]]:
        return [], rows

    def perform(self, row: Claimed, hand_over: Any, companions: Any) -> Result:
        self.ran.append(row.id)
        self.threads.add(threading.current_thread().name)
        self.calls.get(row.id, lambda: None)()
        return Result(row, Outcome(row.id, row.lease))


@pytest.fixture
def runner() -> FakeRunner:
    return FakeRunner()


@pytest.fixture
def executor(runner: FakeRunner) -> Iterator[Executor]:
    waker = Waker()
    executor = Executor(runner, 2, waker)  # type: ignore[arg-type]
    yield executor
    executor.stop()
    executor.join(DEADLINE)
    waker.close()


def rows(*ids: int) -> list[Claimed]:
    return [claimed(pk) for pk in ids]


def finished(executor: Executor) -> list[int]:
    return [result.row.id for done in list(executor.results) for result in done]


def blocker() -> tuple[threading.Event, Callable[[], None]]:
    event = threading.Event()

    def wait() -> None:
        assert event.wait(DEADLINE)

    return event, wait


def test_tiny_jobs_are_run_by_one_thread(executor: Executor, runner: FakeRunner) -> None:
    executor.submit(rows(*range(100)), 1e-6)
    until(lambda: len(finished(executor)) == 100)
    assert runner.ran == list(range(100))
    assert len(runner.threads) == 1


def test_slow_jobs_are_run_by_several_threads(executor: Executor, runner: FakeRunner) -> None:
    event, wait = blocker()
    runner.calls = {1: wait}
    executor.submit(rows(1, 2, 3), 1.0)
    until(lambda: finished(executor) == [2, 3])
    event.set()
    until(lambda: sorted(finished(executor)) == [1, 2, 3])


def test_the_rows_behind_a_slow_job_go_to_another_thread(executor: Executor, runner: FakeRunner) -> None:
    event, wait = blocker()
    runner.calls = {2: wait}
    executor.submit(rows(1, 2, 3, 4), 1e-6)
    until(lambda: 2 in runner.ran)
    assert runner.ran == [1, 2]
    # The producer asks again and again; the job must first have been slow for a while.
    until(lambda: executor.rebalance() == inf)
    until(lambda: sorted(finished(executor)) in ([3, 4], [1, 3, 4]))
    event.set()
    until(lambda: sorted(finished(executor)) == [1, 2, 3, 4])
    assert sorted(runner.ran) == [1, 2, 3, 4]


def test_jobs_start_in_their_order(runner: FakeRunner) -> None:
    waker = Waker()
    executor = Executor(runner, 1, waker)  # type: ignore[arg-type]
    event, wait = blocker()
    runner.calls = {1: wait}
    executor.submit(rows(1, 2, 3, 4, 5, 6), 0.0017)
    until(lambda: 1 in runner.ran)
    assert executor.rebalance() < inf
    event.set()
    until(lambda: len(finished(executor)) == 6)
    assert runner.ran == [1, 2, 3, 4, 5, 6]
    executor.stop()
    executor.join(DEADLINE)
    waker.close()


def test_what_is_done_is_handed_over_although_the_next_job_is_slow(
    executor: Executor, runner: FakeRunner
) -> None:
    event, wait = blocker()
    runner.calls = {2: wait}
    executor.submit(rows(1, 2), 1e-6)
    until(lambda: 2 in runner.ran)
    until(lambda: executor.rebalance() == inf)
    assert finished(executor) == [1]
    event.set()
    until(lambda: finished(executor) == [1, 2])


def test_nobody_has_started_what_is_taken_back(executor: Executor, runner: FakeRunner) -> None:
    event, wait = blocker()
    runner.calls = {1: wait, 2: wait}
    executor.submit(rows(1, 2, 3, 4), 1.0)
    executor.submit(rows(5, 6), 1e-6)
    until(lambda: sorted(runner.ran) == [1, 2])
    assert [row.id for row in executor.take_back()] == [3, 4, 5, 6]
    assert executor.take_back() == []
    event.set()
    until(lambda: sorted(finished(executor)) == [1, 2])
    assert sorted(runner.ran) == [1, 2]


def test_rows_taken_back_while_threads_take_them_are_run_once_or_returned_once(
    executor: Executor, runner: FakeRunner
) -> None:
    for start in range(0, 10_000, 1_000):
        executor.submit(rows(*range(start, start + 1_000)), 1e-6)
    returned = [row.id for row in executor.take_back()]
    until(lambda: len(finished(executor)) + len(returned) == 10_000)
    assert sorted(runner.ran + returned) == list(range(10_000))


def test_a_bug_around_a_task_costs_neither_the_thread_nor_the_job(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(row: Claimed) -> None:
        raise SystemExit("ours")

    runner = Runner("default", 1, StartedJobs.private(1))
    monkeypatch.setattr(runner, "_prepare", broken)
    result = runner.perform(claimed(1), lambda running: None, Companions([]))
    assert result is not None
    assert (result.row.id, result.outcome.kind, result.reported) == (1, "release", False)
    assert "the worker failed" in (result.outcome.reason or "")
    assert "job 1 is requeued because of an error in the worker" in caplog.text


def test_a_thread_that_has_been_called_is_not_idle(
    executor: Executor, runner: FakeRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Race: a thread has received its call, and has not taken its row yet. The next call is not for it."""
    run_rows = executor._run_rows
    go, wait_to_go = blocker()
    end, runner.calls[2] = blocker()
    executor.submit(rows(1), 1.0)
    until(lambda: finished(executor) == [1] and not executor._threads[0].is_busy)

    def held(thread: Any) -> None:
        if thread is executor._threads[0]:
            wait_to_go()
        run_rows(thread)

    monkeypatch.setattr(executor, "_run_rows", held)
    executor.submit(rows(2), 1.0)
    executor.submit(rows(3), 1.0)
    try:
        until(lambda: 2 in runner.ran)
        go.set()
        until(lambda: 3 in runner.ran)
    finally:
        go.set()
        end.set()


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


def test_no_more_threads_than_slots(executor: Executor, runner: FakeRunner) -> None:
    for pk in range(50):
        executor.submit(rows(pk), 1.0)
    until(lambda: len(finished(executor)) == 50)
    assert len(runner.threads) <= 2
    assert len(executor._threads) <= 2


def test_threads_end_when_they_are_told_to() -> None:
    waker = Waker()
    executor = Executor(FakeRunner(), 2, waker)  # type: ignore[arg-type]
    executor.submit(rows(1, 2), 1.0)
    until(lambda: len(finished(executor)) == 2)
    executor.stop()
    executor.join(DEADLINE)
    assert not any(thread.is_alive() for thread in executor._threads)
    waker.close()


def test_the_producer_is_woken_when_threads_may_run_out_of_work(
    executor: Executor, runner: FakeRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    woken: list[list[int]] = []
    monkeypatch.setattr(executor._waker, "wake", lambda: woken.append(finished(executor)))
    (one, first), (two, second), (three, third) = blocker(), blocker(), blocker()
    runner.calls.update({1: first, 2: second, 3: third})
    executor.submit(rows(1, 2, 3), 1.0)  # two threads, so the last job waits
    until(lambda: len(runner.ran) == 2)
    assert executor.rebalance() < inf  # the producer looks again soon
    executor.results.append([])
    assert not executor.has_urgent_results()
    one.set()
    until(lambda: len(runner.ran) == 3)
    assert woken == []  # the first result came while the last job was waiting
    until(lambda: executor.rebalance() == inf)
    assert executor.has_urgent_results()
    two.set()
    three.set()
    until(lambda: sorted(finished(executor)) == [1, 2, 3])
    until(lambda: woken, what="the producer is woken")  # once, if both results were there by then


def test_while_there_is_enough_to_run_the_producer_is_left_alone(
    executor: Executor, runner: FakeRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    woken: list[int] = []
    monkeypatch.setattr(executor._waker, "wake", lambda: woken.append(len(executor._waiting)))
    monkeypatch.setattr(threads_module, "PUBLISH_SECONDS", 0.0)  # each result at once
    calls = {number: blocker() for number in range(1, 9)}
    runner.calls = {number: wait for number, (_, wait) in calls.items()}
    executor.submit(rows(1), 1.0)
    until(lambda: runner.ran == [1])
    assert executor.rebalance() == inf
    executor.submit(rows(2, 3, 4, 5, 6, 7, 8), 1e-6)  # 5 of them ahead: 2 are few
    until(lambda: len(runner.ran) == 2)
    assert executor.rebalance() == BACKLOG_SECONDS  # both threads have work
    for number in (1, 2, 3, 4):
        assert executor.has_backlog
        calls[number][0].set()
        until(lambda: len(runner.ran) == number + 2)  # noqa: B023 - called at once
    assert woken == []  # the last result came while 3 rows were waiting
    assert not executor.has_backlog
    calls[5][0].set()
    until(lambda: woken, what="the producer is woken")
    assert woken == [2]
    assert executor.rebalance() == CALL_SECONDS
    for event, _ in calls.values():
        event.set()
    until(lambda: len(finished(executor)) == 8)


def test_rows_that_were_taken_back_keep_nobody_waiting(executor: Executor, runner: FakeRunner) -> None:
    (one, first), (two, second) = blocker(), blocker()
    runner.calls.update({1: first, 2: second})
    executor.submit(rows(1, 2, 3), 1.0)
    until(lambda: len(runner.ran) == 2)
    assert [row.id for row in executor.take_back()] == [3]
    assert executor.rebalance() == inf
    one.set()
    two.set()
    until(lambda: len(finished(executor)) == 2)
    assert executor.has_urgent_results()
