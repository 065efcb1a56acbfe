"""Atomic tasks: the body and the finish of the job are one transaction, so both are committed, or neither."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django.db import connection, connections

from django_pgqueue import cancel, enqueue, retry, task
from django_pgqueue.compat import InvalidTask
from django_pgqueue.models import Job
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


def test_effect_and_finish_have_one_transaction() -> None:
    job = enqueue(tasks.effect, "a")
    with connection.cursor() as cursor:
        run_due()
        cursor.execute("SELECT xmin FROM app_entry")
        (effect,) = cursor.fetchone()
        cursor.execute("SELECT xmin FROM pgqueue_job WHERE id = %s", [job.pk])
        (finish,) = cursor.fetchone()
    assert effect == finish


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
    assert retry(job) == 1
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
