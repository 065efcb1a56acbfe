"""The models: the properties of a job, and the operations that it refuses."""

from __future__ import annotations

import pytest
from asgiref.sync import async_to_sync

from django_pgqueue.models import Job
from tests.support.factories import ERROR, JobFactory, JobStatFactory, QueueFactory, WorkerFactory

pytestmark = pytest.mark.django_db

STATES = ["scheduled", "retrying", "running", "done", "failed", "cancelled"]


@pytest.mark.promise("only-the-queue-changes-jobs")
def test_a_job_is_neither_saved_nor_deleted() -> None:
    job = JobFactory.create()
    with pytest.raises(TypeError, match=r"job\.cancel\(\)"):
        job.save()
    job.refresh_from_db()
    with pytest.raises(TypeError, match="only the queue changes its state"):
        job.save()
    with pytest.raises(TypeError, match="RETENTION"):
        job.delete()
    assert Job.objects.filter(pk=job.pk, status="pending").exists()


@pytest.mark.parametrize("options", [{}, *({state: True} for state in STATES)])
def test_querysets_of_jobs_are_not_deleted(options: dict[str, bool]) -> None:
    jobs = Job.objects.filter(pk=JobFactory.create(**options).pk)
    for delete in (jobs.delete, jobs.all()[:1].delete, async_to_sync(jobs.adelete)):
        with pytest.raises(TypeError, match=r"cannot be deleted.*job\.cancel\(\).*RETENTION"):
            delete()
    assert jobs.exists()
    with pytest.raises(AttributeError):
        Job.objects.delete()


@pytest.mark.parametrize(
    ("attempts", "errors", "worker", "expected"),
    [
        (0, {}, None, []),
        (1, {}, 9, ["9"]),
        (2, {1: 7}, 9, ["7", "9"]),
        (2, {1: 7, 2: 8}, None, ["7", "8"]),
        # Twenty errors of forty attempts are kept, say: the list is as long as the attempts all the same.
        (5, {1: 7, 4: 8}, 9, ["7", "?", "?", "8", "9"]),
        # It was done at the first attempt, and retried by hand.
        (2, {}, 9, ["?", "9"]),
        (3, {2: 8}, 9, ["?", "8", "9"]),
    ],
)
def test_worker_ids_are_as_many_as_attempts(
    attempts: int, errors: dict[int, int], worker: int | None, expected: list[str]
) -> None:
    kept = [{**ERROR, "attempt": attempt, "worker": by} for attempt, by in errors.items()]
    assert JobFactory.build(attempts=attempts, errors=kept, worker=worker).worker_ids == expected


def test_cancel_is_only_for_querysets() -> None:
    with pytest.raises(AttributeError):
        Job.objects.cancel()  # type: ignore[attr-defined]  # this would cancel every job
    first, _second = JobFactory.create_batch(2)
    assert Job.objects.filter(pk=first.pk).cancel() == 1
    assert sorted(Job.objects.values_list("status", flat=True)) == ["cancelled", "pending"]


def test_rows_say_what_they_are() -> None:
    assert str(JobFactory.build(id=5)) == "tests.app.tasks.add (5)"
    assert str(QueueFactory.create(name="mail")) == "mail"
    assert str(WorkerFactory.create(host="app-1", pid=42)) == "app-1:42"
    assert "tests.app.tasks.add" in str(JobStatFactory.create())
