"""Thousands of async jobs in flight share a few threads, and no job meets what another holds on one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest
from django.db.backends.signals import connection_created

from django_pgqueue import cancel, enqueue, enqueue_many
from django_pgqueue.models import Job
from django_pgqueue.postgres import session
from django_pgqueue.worker.executor import connections, event_loop, timeouts
from django_pgqueue.worker.executor.event_loop import JobThread, SyncThreads
from tests.app import async_tasks, timing_tasks, worker_tasks as tasks
from tests.app.async_tasks import MEETING
from tests.app.models import Entry
from tests.support.workers import DEADLINE, RunningWorker, done, fresh, run_due, until, working

MANY = 200


@pytest.fixture
def hosted(transactional_db: None) -> Iterator[None]:
    """Connections are watched and kept, as in every worker process."""
    MEETING.update(count=0, event=None)
    connections.watch_connections()
    yield
    connection_created.disconnect(dispatch_uid=connections.__name__)


in_a_worker = pytest.mark.usefixtures("hosted")


def statuses(ids: list[int]) -> dict[str, int]:
    found = list(Job.objects.filter(pk__in=ids).values_list("status", flat=True))
    return {status: found.count(status) for status in set(found)}


def in_line(worker: RunningWorker) -> int:
    """How many jobs wait for a thread."""
    return len(worker.producer._executor._loop._sync_threads._line)


@in_a_worker
def test_many_jobs_use_the_orm_before_and_after_they_wait_for_each_other() -> None:
    ids = enqueue_many(async_tasks.meet_between_queries.bind(MANY) for _ in range(MANY)).ids
    run_due(threads=2, async_slots=MANY)
    assert statuses(ids) == {"done": MANY}
    assert {entry.key: entry.note for entry in Entry.objects.all()} == {f"job {pk}": str(pk) for pk in ids}
    ((sessions, threads),) = tasks.SEEN
    # The test's own session, the producer's, two of job threads and two of the async jobs.
    assert sessions <= 6
    assert threads == 2


@in_a_worker
@pytest.mark.parametrize("kind", ["transaction", "closed in a transaction", "setting", "cursor", "iterator"])
def test_a_job_that_holds_something_keeps_its_thread(kind: str) -> None:
    Entry.objects.bulk_create(Entry(key=key) for key in "abc")
    with working(threads=1, async_slots=3) as worker:
        holds = enqueue(async_tasks.keep, kind)
        assert tasks.gate("kept").wait(DEADLINE)
        other = enqueue(tasks.anote, "d")
        until(lambda: in_line(worker) == 1)
        gone = enqueue(tasks.anote, "e")
        until(lambda: in_line(worker) == 2)
        cancel(gone)  # a job that waits for a thread does not wait for it any longer
        until(lambda: fresh(gone).status == "cancelled")
        assert fresh(other).status == "running"
        tasks.release("go on")
        done(other)
        until(lambda: fresh(holds).status in {"done", "retry"})
    found = {"setting": ["kept"], "iterator": ["a", "b", "c"], "closed in a transaction": [True]}
    if kind == "transaction":
        assert "has left a transaction open" in fresh(holds).errors[0]["message"]
    else:
        assert fresh(holds).result == found.get(kind, [""])
    assert sorted(Entry.objects.values_list("key", flat=True)) == ["a", "b", "c", "d"]


@in_a_worker
def test_a_job_that_holds_nothing_lends_its_thread_between_two_calls() -> None:
    with working(threads=1, async_slots=2):
        holds = enqueue(async_tasks.keep, "nothing")
        assert tasks.gate("kept").wait(DEADLINE)
        done(enqueue(tasks.abackend))
        tasks.release("go on")
        done(holds)


@in_a_worker
def test_one_of_many_is_cancelled_and_the_others_go_back_at_the_end() -> None:
    ids = enqueue_many(async_tasks.sleep_forever.bind() for _ in range(MANY)).ids
    with working(threads=1, async_slots=MANY) as worker:
        until(lambda: len(tasks.SEEN) == MANY)
        cancel(Job.objects.get(pk=ids[7]))
        until(lambda: fresh(ids[7]).status == "cancelled")
        worker.stop(grace=0)
    assert statuses(ids) == {"cancelled": 1, "pending": MANY - 1}
    rest = Job.objects.filter(pk__in=ids, status="pending")
    assert set(rest.values_list("attempts", "waiting_reason")) == {(0, "its worker was stopped")}


@in_a_worker
def test_many_timeouts_at_the_same_time_read_their_deadlines_over_few_connections(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened: list[str] = []
    connect = session.connect

    def count(alias: str) -> Any:
        opened.append(alias)
        return connect(alias)

    monkeypatch.setattr(timeouts, "connect", count)
    ids = enqueue_many(timing_tasks.awaits.bind("never") for _ in range(100)).ids
    run_due(threads=1, async_slots=100)
    assert statuses(ids) == {"failed": 100}
    assert {job.errors[0]["class"] for job in Job.objects.all()} == {"django_pgqueue.exceptions.TaskTimeout"}
    assert len(opened) < 50


@in_a_worker
@pytest.mark.promise("context-everywhere")
def test_the_orm_the_current_job_and_context_variables_belong_to_one_job_and_reach_its_threads() -> None:
    variables = [enqueue(async_tasks.isolated, value) for value in ("a", "b")]
    ids = [enqueue(tasks.aid_everywhere) for _ in range(8)]
    orm = enqueue(async_tasks.use_the_orm)
    run_due(threads=1, async_slots=8)
    seen = [fresh(job).result for job in variables]
    assert seen == [["none", value, value, f"{value} again"] for value in ("a", "b")]
    assert [fresh(job).result for job in ids] == [[job.pk] * 4 for job in ids]
    assert fresh(orm).result == [["a", "b", "c"], ["a", "b", "c"], "changed", "new", 3], fresh(orm).errors


@in_a_worker
def test_a_job_that_blocks_its_sync_thread_holds_no_other() -> None:
    with working(threads=2), tasks.held("b", task=tasks.ablock_thread) as blocked:
        done(*enqueue_many(tasks.anote.bind("other") for _ in range(5)).ids)
        assert fresh(blocked).status == "running"
        tasks.release("b")
        done(blocked)


# -- the threads that they borrow: who gets one, and when it is given back


class Check:
    """Stands in for the look at the connections of a thread."""

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
