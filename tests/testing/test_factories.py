"""The factories: each state is one that the queue accepts."""

from __future__ import annotations

import pytest

from django_pgqueue import Batch
from django_pgqueue.models import Edge, Job
from django_pgqueue.testing import run_jobs
from django_pgqueue.testing.factories import BatchFactory, JobFactory
from tests.app import inline_tasks as tasks

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(("trait", "status", "is_due"), [
    ("scheduled", "pending", False), ("retrying", "retry", False), ("blocked", "blocked", False),
    ("running", "running", False), ("done", "done", False), ("failed", "failed", False),
    ("cancelled", "cancelled", False), ("expired", "pending", True),
])  # fmt: skip
def test_each_state(trait: str, status: str, is_due: bool) -> None:
    job = JobFactory.create(task=tasks.see, args=[1], **{trait: True})
    assert Job.objects.get().status == status
    assert [ran.id for ran in run_jobs()] == [job.pk] * is_due


def test_a_job_has_the_queue_of_its_task_and_runs() -> None:
    job = JobFactory.create(task=tasks.in_slow_queue)
    assert (job.task_path, job.queue_name) == ("tests.app.inline_tasks.in_slow_queue", "slow")
    assert JobFactory.create(task="a.b").queue_name == "default"
    assert [ran.outcome for ran in run_jobs(queues="slow")] == ["done"]


def test_jobs_that_wait_for_others_run_after_them() -> None:
    batch = BatchFactory.create(numbers={"added": 3, "done": 3})
    member, over = (
        JobFactory.create(task=tasks.see, args=[1], batch=batch),
        JobFactory.create(done=True, batch=batch),
    )
    child = JobFactory.create(task=tasks.see, args=[2], parents=[member, over, batch])
    alone = JobFactory.create(task=tasks.see, args=[3], parents=[over])
    assert (child.status, child.waiting_reason) == ("blocked", f"waits for jobs {member.pk}, {batch.pk}")
    assert (alone.status, alone.parent_ids) == ("pending", [over.pk])
    assert Edge.objects.filter(child_id=child.pk).count() == 2
    assert Batch.get(batch.pk).counts() == (5, 4, 0, 0)
    assert [ran.id for ran in run_jobs()] == [member.pk, alone.pk, child.pk]
    assert Batch.get(batch.pk).outcome == "done"
    assert BatchFactory.create(over=True).outcome == "done"
    assert BatchFactory.create(is_open=True).status == "open"
