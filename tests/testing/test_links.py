"""Jobs that wait for others, and batches, in the modes of the test kit."""

from __future__ import annotations

from datetime import timedelta

import pytest
from asgiref.sync import async_to_sync

from django_pgqueue import Batch, chain, current_job, enqueue, task
from django_pgqueue.models import Job, JobBatch
from django_pgqueue.testing import (
    assert_enqueued,
    assert_not_enqueued,
    call_task,
    dummy_jobs,
    fake_job,
    immediate_jobs,
    run_jobs,
    travel,
)
from tests.app import inline_tasks as tasks
from tests.app.worker_tasks import add


@task
def total() -> int:
    return sum(current_job().parents.results)


def test_links_in_memory() -> None:
    with dummy_jobs() as jobs:
        first, second = chain([add.bind(1, 2), add.bind(3, 4)])
        assert (second.status, second.parent_ids) == ("blocked", [first.pk])
        with Batch("import") as batch:
            numbers = batch.add(add.bind(n, n) for n in range(3)).ids
            last = enqueue(add.using(after=batch, if_failed="run"), 0, 0)
        assert [job.pk for job in jobs if job.batch_id == batch.id] == numbers
        assert batch.counts() == (3, 0, 0, 0)
        assert (batch.name, batch.is_open, batch.is_finished, batch.outcome) == ("import", False, False, "")
        assert_enqueued(add, after=batch, count=1)
        assert_enqueued(add, batch=batch, count=3)
        assert_enqueued(add, after=[first.pk], batch=None, count=1)
        assert_not_enqueued(add, after=last)
        with pytest.raises(AssertionError, match=rf"after is \[\], not \[{first.pk}\]"):
            assert_enqueued(add, args=[1, 2], after=first)
        assert (batch.cancel(), batch.cancel(), batch.retry_failed()) == (3, 0, 0)
        assert batch.counts().live == 0
        with pytest.raises(JobBatch.DoesNotExist):
            Batch.get(first.pk)


def test_parents_of_a_job_in_memory() -> None:
    with fake_job(parents={5: 1, 6: 2}) as job:
        assert call_task(total) == 3
        assert (list(job.parents), job.parents[5].result, 7 in job.parents) == ([5, 6], 1, False)
        assert job.batch is None
    failed = Job(id=5, status="failed", errors=[{"message": "no"}])
    with fake_job(parents={5: failed}, batch_id=9) as job:
        assert (job.parents[5].status, job.parents.results) == ("failed", [None])
        assert job.batch is not None
        assert job.batch.id == 9
    with fake_job() as job:
        assert (len(job.parents), job.parents.gone, job.parents.results) == (0, [], [])
        with pytest.raises(KeyError, match=r"The job was not enqueued after 5, but after: \[\]"):
            job.parents[5]


def test_parents_of_an_async_job() -> None:
    async def read() -> None:
        assert (await current_job().aparents()).results == [[1, 2]]
        assert await current_job().abatch() is None

    with fake_job(parents={5: (1, 2)}):
        async_to_sync(read)()


@pytest.mark.django_db
@pytest.mark.parametrize("at_once", [False, True])
def test_immediate_mode_goes_through_jobs_that_wait(at_once: bool) -> None:
    tasks.SEEN.clear()
    with immediate_jobs(at_once=at_once):
        with Batch("import") as batch:
            enqueue(tasks.see.using(after=batch), "last")
            enqueue(tasks.see.using(after=batch, if_failed="run"), "any end")
            first, _ = chain([tasks.see.using(batch=batch).bind(1), tasks.see.using(batch=batch).bind(2)])
            batch.add([tasks.see.bind(3)])
        assert tasks.SEEN == [1, 2, 3, "last", "any end"]
        batch.refresh()
        assert (batch.outcome, batch.counts()) == ("done", (3, 3, 0, 0))
        enqueue(tasks.see.using(after=first), "at once")
        assert tasks.SEEN[-1] == "at once"
        waiting = Batch.open()
        enqueue(tasks.see.using(batch=waiting, run_after=timedelta(hours=1)), 4)
        enqueue(tasks.see.using(after=waiting, if_failed="run"), "after the cancel")
        assert tasks.SEEN[-1] == "at once"
        assert waiting.cancel() == 1
        assert tasks.SEEN[-1] == "after the cancel"


@pytest.mark.django_db
def test_immediate_mode_leaves_what_was_due_before() -> None:
    tasks.SEEN.clear()
    before = enqueue(tasks.see, 1)
    child = enqueue(tasks.see.using(after=before), 2)
    run_jobs(limit=1)
    with immediate_jobs():
        enqueue(tasks.see, 3)
    assert tasks.SEEN == [1, 3]
    assert [ran.id for ran in run_jobs()] == [child.pk]


@pytest.mark.django_db
def test_run_jobs_goes_through_sleeps_and_batches() -> None:
    tasks.SEEN.clear()
    with Batch() as batch:
        batch.add([tasks.see.bind(1), tasks.see.using(run_after=timedelta(hours=1)).bind(2)])
        enqueue(tasks.see.using(after=batch), "last")
    run_jobs()
    assert tasks.SEEN == [1]
    travel(hours=2)
    run_jobs()
    assert tasks.SEEN == [1, 2, "last"]
