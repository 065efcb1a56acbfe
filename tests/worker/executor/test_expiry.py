"""Jobs that have expired are cancelled instead of run."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone

from django_pgqueue import enqueue, retry
from django_pgqueue.models import Job
from tests.app import worker_tasks as tasks
from tests.support.workers import fresh, run_due

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.promise("expiry")
def test_an_expired_job_is_cancelled_with_a_reason() -> None:
    job = enqueue(tasks.perishable)
    Job.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    run_due()
    ended = fresh(job)
    assert (ended.status, ended.started_at, ended.attempts, tasks.SEEN) == ("cancelled", None, 0, [])
    assert ended.duration is None
    assert ended.waiting_reason.startswith("expired at 20")


def test_a_job_in_time_runs() -> None:
    job = enqueue(tasks.perishable)
    run_due()
    assert (fresh(job).status, tasks.SEEN) == ("done", ["ran"])


@pytest.mark.usefixtures("undeclared")
def test_a_job_from_sql_expires_by_its_task_although_the_database_does_not_know_it() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pgqueue_enqueue('tests.app.worker_tasks.perishable')")
        (pk,) = cursor.fetchone()
    hours_ago = timezone.now() - timedelta(hours=2)
    Job.objects.filter(pk=pk).update(enqueued_at=hours_ago, run_after=hours_ago)
    assert fresh(pk).expires_at is None
    run_due()
    ended = fresh(pk)
    assert (ended.status, tasks.SEEN) == ("cancelled", [])
    assert ended.expires_at == hours_ago + timedelta(hours=1)


@pytest.mark.usefixtures("undeclared")
def test_a_job_from_sql_in_time_runs_and_knows_when_it_would_expire() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pgqueue_enqueue('tests.app.worker_tasks.perishable')")
        (pk,) = cursor.fetchone()
    run_due()
    done = fresh(pk)
    assert (done.status, tasks.SEEN) == ("done", ["ran"])
    assert done.expires_at is not None
    assert done.expires_at - done.enqueued_at < timedelta(hours=1, seconds=1)


def test_retry_of_an_expired_job_runs_it() -> None:
    job = enqueue(tasks.perishable)
    Job.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    run_due()
    assert retry(job) == 1
    run_due()
    assert (fresh(job).status, tasks.SEEN) == ("done", ["ran"])


def test_a_job_that_expires_before_a_retry_keeps_what_its_first_attempt_left() -> None:
    job = enqueue(tasks.constant_backoff)
    run_due()
    tried = fresh(job)
    assert (tried.status, tried.attempts) == ("retry", 1)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE pgqueue_job SET run_after = now(), expires_at = now() WHERE id = %s", [job.pk])
    run_due()
    ended = fresh(job)
    assert (ended.status, ended.attempts, ended.started_at) == ("cancelled", 1, tried.started_at)
    assert len(ended.errors) == 1
