"""Thousands of async jobs in flight share a few threads, and no job meets what another holds on one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection
from django.db.backends.signals import connection_created

from django_pgqueue import cancel, enqueue, enqueue_many
from django_pgqueue.models import Job
from django_pgqueue.postgres import session
from django_pgqueue.worker.executor import connections, timeouts
from django_pgqueue.worker.producer import demand
from tests.app import async_tasks
from tests.app import hostile_tasks as hostile
from tests.app import worker_tasks as tasks
from tests.app.async_tasks import MEETING
from tests.app.models import Entry
from tests.support.workers import DEADLINE, RunningWorker, fresh, run_due, until, working

pytestmark = pytest.mark.django_db(transaction=True)

MANY = 500


@pytest.fixture(autouse=True)
def hosted() -> Iterator[None]:
    """Connections are watched and kept, as in every worker process."""
    MEETING.update(count=0, event=None)
    connections.watch_connections()
    yield
    connection_created.disconnect(dispatch_uid=connections.__name__)


def statuses(ids: list[int]) -> dict[str, int]:
    found = list(Job.objects.filter(pk__in=ids).values_list("status", flat=True))
    return {status: found.count(status) for status in set(found)}


def sessions() -> set[int]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pid FROM pg_stat_activity"
            " WHERE datname = current_database() AND backend_type = 'client backend'"
        )
        return {pid for (pid,) in cursor.fetchall()}


def in_line(worker: RunningWorker) -> int:
    """How many jobs wait for a thread."""
    return len(worker.producer._executor._loop._sync_threads._line)


def test_many_jobs_use_the_orm_before_and_after_they_wait_for_each_other() -> None:
    ids = enqueue_many(async_tasks.meet_between_queries.bind(MANY) for _ in range(MANY)).ids
    run_due(threads=2, async_slots=MANY)
    assert statuses(ids) == {"done": MANY}
    assert {entry.key: entry.note for entry in Entry.objects.all()} == {f"job {pk}": str(pk) for pk in ids}
    ((sessions, threads),) = tasks.SEEN
    # The test's own session, the producer's, two of job threads and two of the async jobs.
    assert sessions <= 6
    assert threads == 2


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
        tasks.gate("go on").set()
        until(lambda: fresh(other).status == "done")
        until(lambda: fresh(holds).status in {"done", "retry"})
    found = {"setting": ["kept"], "iterator": ["a", "b", "c"], "closed in a transaction": [True]}
    if kind == "transaction":
        assert "has left a transaction open" in fresh(holds).errors[0]["message"]
    else:
        assert fresh(holds).result == found.get(kind, [""])
    assert sorted(Entry.objects.values_list("key", flat=True)) == ["a", "b", "c", "d"]


def test_a_job_that_holds_nothing_lends_its_thread_between_two_calls() -> None:
    with working(threads=1, async_slots=2):
        holds = enqueue(async_tasks.keep, "nothing")
        assert tasks.gate("kept").wait(DEADLINE)
        other = enqueue(tasks.abackend)
        until(lambda: fresh(other).status == "done")
        tasks.gate("go on").set()
        until(lambda: fresh(holds).status == "done")


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


def test_many_timeouts_at_the_same_time_read_their_deadlines_over_few_connections(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened: list[str] = []
    connect = session.connect

    def count(alias: str) -> Any:
        opened.append(alias)
        return connect(alias)

    monkeypatch.setattr(timeouts, "connect", count)
    ids = enqueue_many(async_tasks.sleep_too_long.bind() for _ in range(100)).ids
    run_due(threads=1, async_slots=100)
    assert statuses(ids) == {"failed": 100}
    assert {job.errors[0]["class"] for job in Job.objects.all()} == {"django_pgqueue.exceptions.TaskTimeout"}
    assert len(opened) < 50


def test_async_jobs_do_not_wait_behind_sync_ones_that_have_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demand, "PAUSE", 0.01)
    sync = [enqueue(tasks.hold, "s").pk for _ in range(5)]
    ids = enqueue_many(tasks.anote.bind(str(number)) for number in range(20)).ids
    with working(threads=1, async_slots=10):
        assert tasks.gate("s runs").wait(DEADLINE)
        until(lambda: statuses(ids) == {"done": 20})
        # The others have been requeued, as another worker may have a free thread.
        # They are claimed anew every few milliseconds, so one statement reads both columns.
        rows = Job.objects.filter(pk__in=sync).values_list("status", "attempts")
        until(lambda: sorted(rows.all()) == [("pending", 0)] * 4 + [("running", 1)])
        tasks.gate("s").set()
        until(lambda: statuses(sync) == {"done": 5})


def test_connections_are_bounded_whatever_the_jobs_do_and_none_is_left() -> None:
    """`python -m benchmarks.in_flight` is the long form, with 10,000 jobs."""
    before = sessions()
    kinds_of_jobs: list[Any] = [tasks.backend, tasks.abackend, hostile.tlook, async_tasks.in_a_thread]
    with working(threads=2, async_slots=50):
        ids = enqueue_many(kinds_of_jobs[number % 4].bind() for number in range(300)).ids
        until(lambda: statuses(ids) == {"done": 300})
        # The producer, two job threads, two of async jobs. Others are closed after each call.
        until(lambda: len(sessions() - before) <= 5)
    until(lambda: sessions() <= before)


def test_a_job_that_does_not_let_its_cancellation_pass_goes_on() -> None:
    job = enqueue(async_tasks.clean_up)
    with working(threads=1, async_slots=2):
        until(lambda: tasks.SEEN)
        cancel(job)
        until(lambda: fresh(job).is_finished)
    assert (fresh(job).status, fresh(job).result) == ("done", "went on")
    assert Entry.objects.get().key == "cleaned up"


def test_everything_of_the_orm_works_in_an_async_task() -> None:
    job = enqueue(async_tasks.use_the_orm)
    run_due(threads=1, async_slots=2)
    assert fresh(job).result == [["a", "b", "c"], ["a", "b", "c"], "changed", "new", 3], fresh(job).errors


@pytest.mark.promise("context-everywhere")
def test_context_variables_belong_to_one_job_and_reach_its_threads() -> None:
    jobs = [enqueue(async_tasks.isolated, value) for value in ("a", "b")]
    run_due(threads=1, async_slots=2)
    seen = [fresh(job).result for job in jobs]
    assert seen == [["none", value, value, f"{value} again"] for value in ("a", "b")]
