"""The factories of the test kit with a task of the tests, and claimed rows that are in no database."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from django_pgqueue.jobs.claim import Claimed
from django_pgqueue.models import Job
from django_pgqueue.testing import factories
from django_pgqueue.testing.factories import ERROR, BatchFactory, QueueFactory, WorkerFactory

__all__ = ["ERROR", "BatchFactory", "QueueFactory", "WorkerFactory"]


class JobFactory(factories.JobFactory):
    """A pending job that is due."""

    task = "tests.app.tasks.add"
    args = [1, 2]

    @classmethod
    def create_batch(cls, size: int, **kwargs: Any) -> list[Job]:
        """Insert jobs that are tied to no others in one statement."""
        if {"batch", "batch_id", "parents", "parent_ids"} & kwargs.keys():
            tied: list[Job] = super().create_batch(size, **kwargs)
            return tied
        return Job.objects.bulk_create(cls.build_batch(size, **kwargs))


class JobStatFactory(factories.JobStatFactory):
    """The statistics of a task for one minute."""

    task_path = "tests.app.tasks.add"


class ScheduleFactory(factories.ScheduleFactory):
    """A schedule that someone has made in the admin."""

    task_path = "tests.app.tasks.noop"


def ago(**duration: float) -> datetime:
    """Return a time in the past."""
    return datetime.now(UTC) - timedelta(**duration)


def spread(count: int) -> None:
    """Enqueue jobs one after the other on two shards in turns: those with odd ids on `other`."""
    for number in range(1, count + 1):
        alias, at = ("default", "other")[number % 2], ago(hours=10 - number)
        job = JobFactory.build(id=number, queue_name="mail", task_path="shop.tasks.send")
        Job.objects.using(alias).bulk_create([job])
        Job.objects.using(alias).filter(pk=number).update(enqueued_at=at, run_after=at)


def claimed(pk: int = 1, task_path: str = "tests.app.tasks.noop", **changes: Any) -> Claimed:
    """Return a row as a claim returns it."""
    moment = "2026-11-21 01:38:16.123456+00"
    row = Claimed(
        id=pk, lease=7, task_path=task_path, args="[]", kwargs="{}", queue_name="default", priority=0,
        run_after=moment, attempts=1, forgiven_attempts=0, max_attempts=5, timeout=None, on_lost="rerun",
        crash_count=0, metadata="{}", expires_at=None, expired=None, enqueued_at=moment, started_at=moment,
        last_attempted_at=moment, errors="[]", waited=0.0, group_key=None,
        context=None, tenant=None, marks=0,
    )  # fmt: skip
    return row._replace(**changes)
