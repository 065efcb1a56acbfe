"""The factories: each state is one that the queue accepts."""

from __future__ import annotations

import pytest

from django_pgqueue.models import Job
from django_pgqueue.testing import run_jobs
from django_pgqueue.testing.factories import JobFactory
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
