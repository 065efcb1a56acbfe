"""``run_jobs`` in each kind of test."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.test import TestCase, TransactionTestCase

from django_pgqueue import aenqueue, edit, enqueue, retry
from django_pgqueue.models import Job, Schedule, Worker
from django_pgqueue.testing import arun_jobs, run_jobs, run_maintenance, running, travel
from django_pgqueue.testing.factories import JobFactory, WorkerFactory
from tests.app import inline_tasks as tasks
from tests.app.models import Entry
from tests.support.workers import fresh


@pytest.fixture(autouse=True)
def _nothing_seen() -> None:
    tasks.SEEN.clear()


class InTestCase(TestCase):
    databases = {"default", "other"}

    def test_jobs_see_what_was_not_committed(self) -> None:
        Entry.objects.create(key="not committed")
        job = enqueue(tasks.acount_entries)
        (ran,) = run_jobs()
        assert (ran.id, ran.task_path, ran.outcome, ran.attempt) == (job.pk, job.task_path, "done", 1)
        assert (ran.result, ran.error) == ([1, job.pk], None)
        assert ran.job.status == "done"

    async def test_in_async_code(self) -> None:
        await aenqueue(tasks.acount_entries)
        (ran,) = await arun_jobs()
        assert ran.outcome == "done"

    def test_another_database(self) -> None:
        enqueue(tasks.see.using(database="other"), "other")
        assert run_jobs() == []
        (ran,) = run_jobs(using="other")
        assert ran.job._state.db == "other"
        assert not Worker.objects.using("other").exists()


class InTransactionTestCase(TransactionTestCase):
    def test_it_runs_what_is_due(self) -> None:
        enqueue(tasks.see, 1)
        enqueue(tasks.see.using(run_after=timedelta(hours=1)), 2)
        assert [ran.outcome for ran in run_jobs()] == ["done"]
        assert tasks.SEEN == [1]


class WithoutOther(TestCase):
    def test_a_database_that_the_test_does_not_name_is_refused_by_name(self) -> None:
        with pytest.raises(Exception, match=r"'other' are not allowed in this test.*databases"):
            run_jobs(using="other")


@pytest.mark.django_db
def test_jobs_of_jobs_run_too_and_in_order() -> None:
    enqueue(tasks.see_and_enqueue, 3)
    assert [ran.result for ran in run_jobs()] == [3, 2, 1, 0]


@pytest.mark.django_db
def test_the_first_failure_is_raised_with_the_frames_of_its_task() -> None:
    job = enqueue(tasks.end, "fail")
    behind = enqueue(tasks.see, "behind")
    with pytest.raises(tasks.Fatal) as caught:
        run_jobs()
    assert caught.traceback[-1].name == "_end"
    assert [fresh(each).status for each in (job, behind)] == ["failed", "pending"]


@pytest.mark.django_db
def test_failures_are_returned_if_the_test_wants_that() -> None:
    enqueue(tasks.end, "fail")
    enqueue(tasks.end, "raise")
    enqueue(tasks.see, "behind")
    failed, retried, done = run_jobs(raise_failures=False)
    assert (failed.outcome, type(failed.error)) == ("failed", tasks.Fatal)
    assert (retried.outcome, type(retried.error)) == ("retry", ValueError)
    assert done.outcome == "done"


@pytest.mark.django_db
@pytest.mark.parametrize("how", ["retry_later", "snooze", "cancel"])
def test_what_a_task_asks_for_is_no_failure(how: str) -> None:
    enqueue(tasks.end, how)
    assert len(run_jobs()) == 1


@pytest.mark.django_db
def test_a_retry_without_attempts_left_is_a_failure() -> None:
    job = enqueue(tasks.end, "retry_later")
    Job.objects.filter(pk=job.pk).update(max_attempts=1)
    with pytest.raises(Exception, match="retry after 60 s"):
        run_jobs()


@pytest.mark.django_db
def test_only_some_queues_and_only_so_many() -> None:
    for queue in "aabbc":
        enqueue(tasks.see.using(queue_name=queue), queue)
    run_jobs(queues="a")
    run_jobs(queues=["b", "c"], limit=2)
    assert tasks.SEEN == ["a", "a", "b", "b"]
    with pytest.raises(ValueError, match="names no queue"):
        run_jobs(queues=[])


@pytest.mark.django_db
def test_jobs_without_an_end_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "MOST_RUNS", 20)
    enqueue(tasks.see_and_enqueue, 10**9)
    with pytest.raises(RuntimeError, match=r"has run 20 jobs.*see_and_enqueue 20 times.*run_jobs\(limit="):
        run_jobs()


@pytest.mark.django_db
def test_due_schedules_fire_if_asked() -> None:
    Schedule.objects.create(name="daily", task_path=tasks.see.module_path, args=["daily"], cron="0 3 * * *")
    run_jobs(schedules=True)
    travel(days=1)
    run_jobs()
    assert tasks.SEEN == []
    # Modules of other tests may declare schedules, too.
    run_jobs(schedules=True, raise_failures=False)
    assert tasks.SEEN == ["daily"]
    run_jobs(schedules=True, raise_failures=False)
    assert tasks.SEEN == ["daily"]


@pytest.mark.django_db
def test_upkeep_gives_back_the_jobs_of_dead_workers() -> None:
    worker = WorkerFactory.create()
    job = JobFactory.create(task=tasks.see, args=["again"], running=True, worker=worker.pk)
    run_maintenance()
    assert fresh(job).status == "running"
    travel(minutes=5)
    run_maintenance()
    assert fresh(job).status in {"pending", "retry"}
    run_jobs()
    assert tasks.SEEN == ["again"]


@pytest.mark.django_db
@pytest.mark.parametrize("call", [run_jobs, run_maintenance, lambda: travel(hours=1)])
def test_a_database_that_is_none_of_a_test_is_refused(call: Any) -> None:
    settings = connection.settings_dict
    name = settings["NAME"]
    settings["NAME"] = "production"
    try:
        with pytest.raises(Exception, match="the database 'production' is not a test database"):
            call()
    finally:
        settings["NAME"] = name


@pytest.mark.django_db
@pytest.mark.parametrize("call", [run_jobs, run_maintenance, lambda: travel(hours=1)])
def test_outside_of_a_test_it_is_refused(call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from django.test.utils import _TestState

    monkeypatch.delattr(_TestState, "saved_data")
    with pytest.raises(Exception, match="for tests only, and no test runs here"):
        call()


@pytest.mark.django_db
def test_the_connection_is_the_same_afterwards() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET application_name TO 'the test'")
    job = enqueue(tasks.see, 1)
    with transaction.atomic():
        run_jobs()
        retry(job)
    with connection.cursor() as cursor:
        cursor.execute("SHOW application_name")
        assert cursor.fetchone() == ("the test",)
        assert connection.queries_log is not None


@pytest.mark.django_db
def test_a_job_behind_a_lost_one_is_let_go_and_may_be_put_off() -> None:
    second = enqueue(tasks.one_at_a_time, 2)
    worker = WorkerFactory.create().pk
    first = JobFactory.create(
        task=tasks.one_at_a_time, args=[1], running=True, worker=worker, limit_key=second.limit_key
    )
    assert run_jobs() == []
    assert fresh(second).status == "blocked"
    travel(minutes=5)
    run_maintenance()
    edit(second, run_after=timedelta(hours=1))
    other = enqueue(tasks.see, "other")
    assert {ran.id for ran in run_jobs()} == {first.pk, other.pk}
    travel(hours=1)
    assert [ran.id for ran in run_jobs()] == [second.pk]
