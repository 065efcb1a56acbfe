"""Atomic tasks: the body and the finish of the job are one transaction, so both are committed, or neither."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import psycopg
import pytest
from asgiref.sync import sync_to_async
from django.db import DatabaseError, OperationalError, connection, connections, transaction
from django.db.transaction import TransactionManagementError

from django_pgqueue import cancel, enqueue, retry, task
from django_pgqueue.compat import InvalidTask, task_started
from django_pgqueue.models import Job
from django_pgqueue.tasks.task import Task
from django_pgqueue.testing import run_jobs
from tests.app import worker_tasks as tasks
from tests.app.models import Entry
from tests.support.workers import fresh, run_due, until, working

pytestmark = pytest.mark.django_db(transaction=True)


@contextmanager
def held(key: str) -> Iterator[Job]:
    """Run an atomic job that has written its row and waits, uncommitted. It continues at the end of the
    block.
    """
    job = enqueue(tasks.effect, key, then="wait")
    with working():
        assert tasks.gate(f"{key} runs").wait(tasks.DEADLINE)
        yield job
        tasks.gate(key).set()


def test_effect_and_finish_are_both_there() -> None:
    job = enqueue(tasks.effect, "a")
    run_due()
    done = fresh(job)
    assert (done.status, done.result, done.attempts) == ("done", "a", 1)
    assert done.started_at is not None
    assert Entry.objects.count() == 1


@pytest.mark.promise("atomic-exactly-once")
def test_effect_and_finish_have_one_transaction() -> None:
    job = enqueue(tasks.effect, "a")
    with connection.cursor() as cursor:
        run_due()
        cursor.execute("SELECT xmin FROM app_entry")
        (effect,) = cursor.fetchone()
        cursor.execute("SELECT xmin FROM pgqueue_job WHERE id = %s", [job.pk])
        (finish,) = cursor.fetchone()
    assert effect == finish


@pytest.mark.promise("atomic-exactly-once")
def test_a_failure_takes_the_effect_back() -> None:
    job = enqueue(tasks.effect, "a", then="raise")
    run_due()
    assert (fresh(job).status, fresh(job).attempts, len(fresh(job).errors)) == ("failed", 2, 2)
    assert tasks.SEEN == [1, 2]
    assert not Entry.objects.exists()


def test_a_result_that_cannot_be_stored_takes_the_effect_back() -> None:
    job = enqueue(tasks.effect, "a", then="bad result")
    run_due()
    assert (fresh(job).status, fresh(job).attempts) == ("failed", 1)
    assert not Entry.objects.exists()


def test_snooze_takes_the_effect_back() -> None:
    job = enqueue(tasks.effect, "a", then="snooze")
    run_due()
    assert (fresh(job).status, fresh(job).attempts) == ("pending", 0)
    assert not Entry.objects.exists()


@pytest.mark.promise("atomic-after-takeover")
def test_a_lost_lease_raises_and_takes_the_effect_back(caplog: pytest.LogCaptureFixture) -> None:
    with held("a") as job, connection.cursor() as cursor:
        # This is what a recovery does. The job now belongs to another worker.
        cursor.execute(
            "UPDATE pgqueue_job_live SET status = 'pending', worker = NULL, lease = NULL,"
            " run_after = now() + interval '1 hour' WHERE id = %s", [job.pk],
        )  # fmt: skip
    assert "lost its lease" in caplog.text
    assert (fresh(job).status, fresh(job).errors) == ("pending", [])
    assert not Entry.objects.exists()


def test_a_job_that_is_gone_raises_and_takes_the_effect_back(caplog: pytest.LogCaptureFixture) -> None:
    with held("a"), connection.cursor() as cursor:
        cursor.execute("DELETE FROM pgqueue_job_live")
    assert "there is no live job" in caplog.text
    assert not Entry.objects.exists()


def test_a_cancel_that_comes_late_does_not_undo_the_work() -> None:
    with held("a") as job:
        assert cancel(job) == 1
    assert fresh(job).status == "done"
    assert Entry.objects.count() == 1


@pytest.mark.promise("atomic-serialization")
def test_a_serialization_failure_is_done_again() -> None:
    """Two jobs read and write the same row. Under REPEATABLE READ, the second one fails with 40001."""
    Entry.objects.create(key="counter", note="0")
    jobs = [enqueue(tasks.increment, "counter") for _ in range(2)]
    with working(threads=2):
        until(lambda: tasks.SEEN.count("read") == 2)
        tasks.gate("counter").set()
        until(lambda: all(fresh(job).status == "done" for job in jobs))
    assert Entry.objects.get().note == "2"
    assert len(tasks.SEEN) == 3
    assert [fresh(job).attempts for job in jobs] == [1, 1]


def test_an_atomic_job_can_be_retried_and_runs_anew() -> None:
    job = enqueue(tasks.effect, "a")
    run_due()
    assert retry(job, done=True) == 1
    run_due()
    assert Entry.objects.count() == 2


def test_an_async_task_cannot_be_atomic() -> None:
    with pytest.raises(InvalidTask, match="atomic"):

        @task(atomic=True)
        async def never() -> None: ...


def test_the_job_must_lie_where_the_task_works() -> None:
    with pytest.raises(InvalidTask, match=r"works on the database 'default'.*in\s+'other'"):
        enqueue(tasks.effect.using(database="other"), "a")


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_a_job_that_lies_elsewhere_all_the_same_fails() -> None:
    """A job that SQL enqueued on the wrong database does not run."""
    with connections["other"].cursor() as cursor:
        cursor.execute("SELECT pgqueue_enqueue('tests.app.worker_tasks.effect', '[\"a\"]'::jsonb)")
    run_due(alias="other")
    # max_attempts 2, backoff 0: both attempts are refused.
    job = Job.objects.using("other").get()
    assert (job.status, tasks.SEEN) == ("failed", [])
    assert "one transaction cannot span both" in job.errors[0]["message"]


AFTER_COMMIT: list[str] = []


@task(atomic=True, max_attempts=1)
def raises_after_the_commit() -> str:
    Entry.objects.create(key="a")
    transaction.on_commit(lambda: AFTER_COMMIT.append("before"))
    transaction.on_commit(lambda: [][0])
    return "done"


@task(atomic=True, max_attempts=1)
def ends_its_transaction(how: str, then: str = "") -> None:
    Entry.objects.create(key="a")
    try:
        if how == "psycopg":
            connection.connection.rollback()
        else:
            with connection.cursor() as cursor:
                cursor.execute(how)
    except TransactionManagementError:
        if then != "goes on":
            raise
    if then == "writes":
        Entry.objects.create(key="b")


def test_a_job_whose_on_commit_function_raises_is_done(caplog: pytest.LogCaptureFixture) -> None:
    job = enqueue(raises_after_the_commit)
    run_due()
    assert (fresh(job).status, fresh(job).result, fresh(job).errors) == ("done", "done", [])
    assert (Entry.objects.count(), AFTER_COMMIT) == (1, ["before"])
    AFTER_COMMIT.clear()
    assert f"job {job.pk} (" in caplog.text
    assert "is done, but a function that it has passed to on_commit() raised an exception" in caplog.text
    assert "IndexError" in caplog.text
    assert "lost its lease" not in caplog.text


def test_a_test_sees_what_an_on_commit_function_of_an_atomic_job_raises() -> None:
    enqueue(raises_after_the_commit)
    with pytest.raises(IndexError), transaction.atomic():
        run_jobs()
    AFTER_COMMIT.clear()


@pytest.mark.parametrize("then", ["", "writes", "goes on"])
@pytest.mark.parametrize("how", ["ROLLBACK", "COMMIT", "psycopg"])
@pytest.mark.promise("atomic-own-rollback")
def test_an_atomic_job_that_ends_its_transaction_is_not_done(how: str, then: str) -> None:
    job = enqueue(ends_its_transaction, how, then)
    run_due()
    failed = fresh(job)
    assert failed.status == "failed"
    assert "has ended its transaction, with a COMMIT or ROLLBACK of its own" in failed.errors[0]["message"]
    assert not Entry.objects.filter(key="b").exists()


def test_the_next_job_is_not_affected_by_one_that_ended_its_transaction() -> None:
    jobs = [enqueue(ends_its_transaction, "ROLLBACK"), enqueue(tasks.effect, "a"), enqueue(tasks.noop)]
    run_due(threads=1)
    assert [fresh(job).status for job in jobs] == ["failed", "done", "done"]


@task(max_attempts=1)
def leaves_a_transaction_open(what: str) -> None:
    transaction.set_autocommit(False)
    if what == "reads":
        Entry.objects.count()
    elif what == "breaks":
        with suppress(DatabaseError), connection.cursor() as cursor:
            cursor.execute("SELECT 1 / 0")
    elif what == "writes":
        Entry.objects.create(key="lost")


@task(max_attempts=1)
async def borrows_a_thread(what: str) -> None:
    await sync_to_async(leaves_a_transaction_open.func)(what)


@task(max_attempts=1)
async def uses_any_thread(what: str) -> None:
    await asyncio.to_thread(leaves_a_transaction_open.func, what)


@pytest.fixture(params=["worker", "inline"])
def run_them(request: pytest.FixtureRequest) -> Callable[[], object]:
    return (
        partial(run_due, threads=1) if request.param == "worker" else partial(run_jobs, raise_failures=False)
    )


@pytest.mark.parametrize(
    ("what", "status"), [("writes", "failed"), ("breaks", "failed"), ("reads", "done"), ("nothing", "done")]
)
@pytest.mark.promise("open-transaction-fails")
def test_a_job_that_leaves_a_transaction_open_is_not_done_if_that_loses_something(
    what: str, status: str, run_them: Callable[[], object]
) -> None:
    job, atomic = enqueue(leaves_a_transaction_open, what), enqueue(tasks.effect, "a")
    run_them()
    connection.close()  # what is not committed is lost
    assert (fresh(job).status, fresh(atomic).status) == (status, "done")
    assert [entry.key for entry in Entry.objects.all()] == ["a"]
    if status == "failed":
        assert "has left a transaction open in the database default" in fresh(job).errors[0]["message"]


@pytest.mark.promise("open-transaction-fails")
def test_an_async_job_that_leaves_a_transaction_open_is_not_done_either(
    run_them: Callable[[], object],
) -> None:
    _loses_what_it_wrote(borrows_a_thread, run_them)


def test_a_call_on_another_thread_that_leaves_a_transaction_open_raises() -> None:
    _loses_what_it_wrote(uses_any_thread, run_due)


def _loses_what_it_wrote(async_task: Task[[str], Any], run_them: Callable[[], object]) -> None:
    jobs = [enqueue(async_task, what) for what in ("writes", "reads")]
    run_them()
    connection.close()
    assert [fresh(job).status for job in jobs] == ["failed", "done"]
    assert not Entry.objects.exists()
    assert "has left a transaction open in the database default" in fresh(jobs[0]).errors[0]["message"]


def test_an_atomic_job_commits_although_autocommit_is_off_before() -> None:
    def turn_off(**kwargs: object) -> None:
        transaction.set_autocommit(False)

    task_started.connect(turn_off)
    try:
        job = enqueue(tasks.effect, "a")
        run_due()
    finally:
        task_started.disconnect(turn_off)
    assert (fresh(job).status, Entry.objects.count()) == ("done", 1)


CONFLICTS: list[list[Exception]] = []


@task(atomic=True, max_attempts=1)
def conflicts_in_a_group() -> None:
    if CONFLICTS:
        conflict = OperationalError()
        conflict.__cause__ = psycopg.errors.SerializationFailure()
        raise ExceptionGroup("group", [conflict, *CONFLICTS.pop()])


@pytest.mark.parametrize(("beside", "status"), [([], "done"), ([ValueError()], "failed")])
def test_a_serialization_failure_in_a_group_is_done_again(beside: list[Exception], status: str) -> None:
    CONFLICTS[:] = [beside]
    job = enqueue(conflicts_in_a_group)
    run_due()
    assert (fresh(job).status, fresh(job).attempts) == (status, 1)
