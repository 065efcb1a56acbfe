"""What becomes of the jobs of a worker that is gone."""

from __future__ import annotations

import pytest
from django.db import connection
from django.utils.module_loading import import_string

from django_pgqueue.exceptions import WorkerLost
from django_pgqueue.models import Job
from tests.support.factories import JobFactory

pytestmark = pytest.mark.django_db


def recover(limit: int = 100) -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pgqueue_recover_v1(ARRAY[7]::bigint[], %s, 20)", [limit])
        jobs: int = cursor.fetchone()[0]
    return jobs


def test_a_job_that_may_run_twice_goes_back_and_has_spent_no_attempt() -> None:
    job = JobFactory.create(running=True)
    assert recover() == 1
    back = Job.objects.get(pk=job.pk)
    assert (back.status, back.attempts, back.worker, back.lease) == ("pending", 0, None, None)
    assert back.waiting_reason == "its worker was lost"


def test_a_job_that_must_not_run_twice_fails_with_an_error_that_can_be_imported() -> None:
    job = JobFactory.create(running=True, on_lost="fail")
    assert recover() == 1
    failed = Job.objects.get(pk=job.pk)
    assert (failed.status, failed.attempts) == ("failed", 1)
    (error,) = failed.errors
    assert import_string(error["class"]) is WorkerLost
    assert "must not run twice" in error["message"]


def test_the_jobs_of_other_workers_are_left_alone_and_a_round_is_bounded() -> None:
    JobFactory.create_batch(3, running=True)
    alive = JobFactory.create(running=True, worker=8)
    assert [recover(2), recover(2), recover(2)] == [2, 1, 0]
    assert Job.objects.get(pk=alive.pk).status == "running"
