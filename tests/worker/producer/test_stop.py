"""Stopping a worker at the most difficult moments."""

from __future__ import annotations

import pytest

from django_pgqueue import enqueue_many
from django_pgqueue.models import Job
from tests.app import worker_tasks as tasks
from tests.support.sessions import Connect, who_waits_for
from tests.support.workers import DEADLINE, RunningWorker, make_producer, until

pytestmark = pytest.mark.django_db(transaction=True)


def test_race_a_worker_is_stopped_while_its_claim_is_on_the_way(connect: Connect) -> None:
    """The claim waits for a lock, the signal arrives, and the claim succeeds: none of its jobs is started."""
    holder, observer = connect(), connect(autocommit=True)
    worker = RunningWorker(make_producer(threads=2))
    ids = enqueue_many(tasks.see.bind(number) for number in range(20)).ids
    until(lambda: Job.objects.filter(pk__in=ids, status="done").count() == 20)
    tasks.SEEN.clear()
    # The claim now has ranges to read. It waits for this lock while there are jobs to claim.
    holder.execute("LOCK TABLE pgqueue_job_live IN SHARE ROW EXCLUSIVE MODE")
    ids = [
        row[0]
        for row in holder.execute(
            "SELECT pgqueue_enqueue('tests.app.worker_tasks.see', args => '[1]') FROM generate_series(1, 20)"
        ).fetchall()
    ]
    observer.execute("SELECT pg_notify(_pgqueue_channel(), 'wake default')")
    until(lambda: who_waits_for(holder, observer), what="the claim waits")
    worker.producer.stop(DEADLINE)
    holder.commit()
    worker.stop()
    assert tasks.SEEN == []
    assert set(Job.objects.filter(pk__in=ids).values_list("status", "attempts")) == {("pending", 0)}
