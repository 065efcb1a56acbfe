"""A worker in the process of its caller, and another worker beside it."""

from __future__ import annotations

import pytest
from django.db import connection

from django_pgqueue import enqueue
from django_pgqueue.worker.inline import InlineWorker
from tests.app import inline_tasks as tasks
from tests.support.jobs import claim, finish
from tests.support.sessions import Connect
from tests.support.workers import fresh

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_job_that_another_worker_claims_at_this_moment_is_left_alone(connect: Connect) -> None:
    """Without the lock of what a claim takes first, it waits for the other one, and claims the job again."""
    other, here = connect(), InlineWorker("default")
    job = enqueue(tasks.see, 1)
    with connection.cursor() as cursor:
        cursor.execute("SET lock_timeout TO '3s'")
    try:
        assert [row.id for row in claim(other)] == [job.pk]
        assert here.run_if_due(job.pk) is None
        assert here.run_next() is None
        other.commit()
        assert here.run_if_due(job.pk) is None
        assert fresh(job).worker == 1
        assert finish(other, [job.pk]) == [job.pk]
        other.commit()
        assert fresh(job).attempts == 1
    finally:
        with connection.cursor() as cursor:
            cursor.execute("RESET lock_timeout")
