"""Threads that async jobs borrow: who gets one, and when it is given back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from typing import Any

import pytest

from django_pgqueue.worker.executor import event_loop
from django_pgqueue.worker.executor.event_loop import JobThread, SyncThreads
from tests.support.workers import DEADLINE, until


class Check:
    """Stands in for the look at the connections."""

    def __init__(self) -> None:
        self.holds = False
        self.began, self.go_on = threading.Event(), threading.Event()
        self.go_on.set()

    def __call__(self) -> bool:
        self.began.set()
        assert self.go_on.wait(DEADLINE)
        return not self.holds


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch) -> Check:
    check = Check()
    monkeypatch.setattr(event_loop, "hold_nothing", check)
    return check


@pytest.fixture
def make(check: Check) -> Iterator[Callable[..., SyncThreads]]:
    made: list[SyncThreads] = []

    def make(limit: int = 1, *, shared: bool = True) -> SyncThreads:
        made.append(SyncThreads(limit, shared=shared))
        return made[-1]

    yield make
    check.go_on.set()
    for threads in made:
        threads.stop()
        for thread in threads.threads:
            thread.join(DEADLINE)
            assert not thread.is_alive()


def result(future: Future[Any]) -> Any:
    return future.result(DEADLINE)


def blocked(job: JobThread) -> threading.Event:
    """Let a job block its thread, and return what ends this."""
    runs, end = threading.Event(), threading.Event()

    def block() -> None:
        runs.set()
        assert end.wait(DEADLINE)

    job.submit(block)
    assert runs.wait(DEADLINE)
    return end


def test_a_thread_is_made_for_a_call_and_no_more_than_allowed(make: Any) -> None:
    threads = make(2)
    jobs = [JobThread(threads) for _ in range(5)]
    assert threads.threads == []
    assert len({result(job.submit(threading.get_ident)) for job in jobs}) <= 2
    assert [thread.name for thread in threads.threads] in (
        ["pgqueue-sync-1"],
        ["pgqueue-sync-1", "pgqueue-sync-2"],
    )


def test_calls_of_one_job_run_one_after_another_on_the_same_thread(make: Any) -> None:
    job, order = JobThread(make(3)), list[int]()

    def note(number: int) -> int:
        order.append(number)
        return threading.get_ident()

    calls = [job.submit(note, number) for number in range(9)]
    assert len({result(call) for call in calls}) == 1
    assert order == list(range(9))


def test_a_job_waits_while_the_only_thread_is_busy_and_others_before_it_come_first(make: Any) -> None:
    threads, order = make(), list[str]()
    first, second, third = (JobThread(threads) for _ in range(3))
    end = blocked(first)
    calls = [second.submit(order.append, "second"), third.submit(order.append, "third")]
    gone = third.submit(order.append, "cancelled")
    assert gone.cancel()
    end.set()
    for call in calls:
        result(call)
    with pytest.raises(CancelledError):
        result(gone)
    assert order == ["second", "third"]


def test_a_job_that_holds_something_keeps_its_thread_until_it_ends(make: Any, check: Check) -> None:
    threads = make()
    first, second = JobThread(threads), JobThread(threads)
    check.holds = True
    result(first.submit(str))
    waits = second.submit(str)
    assert not waits.done()
    assert first.thread is not None
    result(threads.end(first))
    result(waits)


def test_jobs_that_need_not_share_keep_their_threads_without_a_check(make: Any, check: Check) -> None:
    threads = make(2, shared=False)
    first, second = JobThread(threads), JobThread(threads)
    for _ in range(2):
        assert result(first.submit(threading.get_ident)) != result(second.submit(threading.get_ident))
    assert not check.began.is_set()


@pytest.mark.parametrize("then", ["call", "end"])
def test_a_thread_that_its_job_uses_again_while_it_is_checked_is_not_given_away(
    then: str, make: Any, check: Check
) -> None:
    """Race: the job calls again, or ends, after the check began and before the thread is given away."""
    threads = make()
    first, second = JobThread(threads), JobThread(threads)
    check.go_on.clear()
    began = first.submit(str)
    assert check.began.wait(DEADLINE)
    owners: list[Any] = []
    again = first.submit(lambda: owners.append(threads.threads[0].job)) if then == "call" else None
    ended = threads.end(first)
    other = second.submit(lambda: owners.append(threads.threads[0].job))
    check.go_on.set()
    for future in (began, again, ended, other):
        if future is not None:
            result(future)
    assert owners == ([first, second] if again else [second])
    result(second.submit(str))  # the thread is alive


def test_what_a_job_has_left_running_borrows_a_thread_for_each_call(make: Any, check: Check) -> None:
    threads = make()
    first, second = JobThread(threads), JobThread(threads)
    check.holds = True
    result(first.submit(str))
    result(threads.end(first))
    result(first.submit(str))
    until(lambda: first.thread is None)
    result(second.submit(str))


def test_an_exception_reaches_the_caller_and_the_thread_goes_on(make: Any) -> None:
    def fail() -> None:
        raise SystemExit(3)

    job = JobThread(make())
    with pytest.raises(SystemExit):
        result(job.submit(fail))
    assert result(job.submit(len, "abc")) == 3


def test_a_stop_cancels_what_waits_and_refuses_more(make: Any) -> None:
    threads = make()
    first, second = JobThread(threads), JobThread(threads)
    end = blocked(first)
    waits = second.submit(str)
    threads.stop()
    assert waits.cancelled()
    assert threads.end(first) is None
    with pytest.raises(RuntimeError, match="this worker has stopped"):
        second.submit(str)
    end.set()
