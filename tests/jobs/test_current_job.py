"""``CurrentJob`` behaves like a ``Job``, can ask its worker, and is not a model of the project."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.apps import apps
from django.contrib.contenttypes.models import ContentType

from django_pgqueue import CurrentJob, cancel
from django_pgqueue.models import Job
from django_pgqueue.testing import fake_job
from tests.support.factories import JobFactory

pytestmark = pytest.mark.django_db


@pytest.fixture
def row() -> Job:
    return JobFactory.create(running=True, metadata={"why": ["audit"]})


@pytest.fixture
def job(row: Job) -> Iterator[Any]:
    """The job as its task sees it."""
    with fake_job(id=row.pk, task_path=row.task_path, metadata=row.metadata) as job:
        yield job


def test_it_is_a_job(row: Job, job: Any) -> None:
    assert isinstance(job, Job)
    assert job == row
    assert row == job
    assert len({job, row}) == 1
    assert (job.pk, job.metadata, job.status) == (row.pk, {"why": ["audit"]}, Job.Status.RUNNING)
    assert str(job) == str(row)
    with pytest.raises(TypeError, match="only the queue changes its state"):
        job.save()
    with pytest.raises(TypeError, match="cannot be deleted"):
        job.delete()
    Job.objects.filter(pk=row.pk).update(waiting_reason="news")
    job.refresh_from_db()
    assert job.waiting_reason == "news"
    assert type(job) is CurrentJob


def test_it_asks_its_worker(django_assert_num_queries: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    durations: list[float | timedelta] = []
    with django_assert_num_queries(0):
        for asked in (False, True):
            with fake_job(cancel_requested=asked) as job:
                assert (job.cancel_requested, job.wait_for_cancel(0)) == (asked, asked)
        assert job.extend(5)
        monkeypatch.setattr(type(job._running), "extend", lambda _, given: durations.append(given))
        job.extend(7)
        async_to_sync(job.aextend)(timedelta(minutes=1))
    assert durations == [7, timedelta(minutes=1)]


def test_the_row_may_say_first_that_it_is_asked_to_stop(job: Any) -> None:
    assert cancel(job) == 1
    before = job.cancel_requested  # the worker does not know of it yet
    job.refresh_from_db()
    assert (before, job.cancel_requested) == (False, True)


@pytest.mark.parametrize("copied", [
    copy.copy,
    copy.deepcopy,
    lambda job: pickle.loads(pickle.dumps(job)),  # noqa: S301
])  # fmt: skip
def test_a_copy_is_a_plain_job(job: Any, copied: Callable[[Any], Any]) -> None:
    found = copied(job)
    assert type(found) is Job
    assert found == job
    assert (found.metadata, found._state.db, found._state.adding) == (job.metadata, "default", False)
    assert "_running" not in vars(found)
    found.status = "done"
    found.refresh_from_db()
    assert found.status == "running"
    assert job.status == "running"
    assert job.extend(5)


def test_what_is_read_through_it_is_a_plain_job(row: Job, job: Any) -> None:
    """Generic code uses ``type(job).objects``."""
    mine = type(job).objects.filter(pk=row.pk)
    assert type(mine.get()) is Job
    assert mine.cancel() == 1
    with pytest.raises(Job.DoesNotExist):
        CurrentJob.objects.get(pk=0)


def test_a_plain_job_cannot_ask() -> None:
    assert not {"set_progress", "step", "wait_for_cancel"} & set(dir(Job))
    assert not Job(cancel_requested_at=None).cancel_requested
    assert Job(cancel_requested_at=datetime.now(UTC)).cancel_requested


def test_it_is_no_model_of_the_project(job: Any) -> None:
    assert CurrentJob not in apps.get_models(include_auto_created=True)
    assert CurrentJob._meta.concrete_model is Job
    assert ContentType.objects.get_for_model(job) == ContentType.objects.get_for_model(Job)
    assert "currentjob" not in apps.all_models["django_pgqueue"]
