"""Factories for rows in every state of a job, with the values that the queue itself would write.

They need factory-boy: ``pip install "dj-pgqueue[testing]"``.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.utils import timezone

try:
    from factory.declarations import LazyAttribute, LazyFunction, Sequence, Trait
    from factory.django import DjangoModelFactory
except ImportError as error:
    raise ImportError(
        'The factories of django_pgqueue need factory-boy. Install it with: pip install "dj-pgqueue[testing]"'
    ) from error

from ..models import Job, JobStat, Queue, Schedule, Worker
from ..models.stat import HISTOGRAM_BOUNDS

__all__ = ["ERROR", "JobFactory", "JobStatFactory", "QueueFactory", "ScheduleFactory", "WorkerFactory"]

ERROR = {
    "class": "shop.errors.GatewayDown",
    "message": "no answer from the gateway",
    "traceback": "Traceback (most recent call last):\n  File ...\nshop.errors.GatewayDown: no answer",
    "worker": "7",
    "attempt": 1,
    "started_at": "2026-11-21T00:00:00+00:00",
    "finished_at": "2026-11-21T00:00:01+00:00",
}
"""An entry of ``Job.errors``."""


class JobFactory(DjangoModelFactory[Job]):
    """A pending job that is due: ``JobFactory(task=send_receipt, args=[7])``.

    ``task``: a task, or its path. The other states are traits: ``JobFactory(failed=True)``, ``scheduled``,
    ``retrying``, ``blocked``, ``running``, ``done``, ``cancelled``, ``expired``.
    """

    class Meta:
        model = Job
        exclude = ("task",)

    class Params:
        """The other states."""

        scheduled = Trait(run_after=LazyFunction(lambda: timezone.now() + timedelta(hours=1)))
        retrying = Trait(
            status=Job.Status.RETRY,
            attempts=1,
            errors=[ERROR],
            run_after=LazyFunction(lambda: timezone.now() + timedelta(minutes=1)),
        )
        blocked = Trait(status=Job.Status.BLOCKED, waiting_reason="waits for another job")
        expired = Trait(expires_at=LazyFunction(lambda: timezone.now() - timedelta(minutes=1)))
        running = Trait(
            status=Job.Status.RUNNING,
            attempts=1,
            worker=7,
            lease=Sequence(lambda n: n + 1),
            started_at=LazyFunction(timezone.now),
            last_attempted_at=LazyFunction(timezone.now),
        )
        over = Trait(
            shelf=1,
            attempts=1,
            worker=7,
            started_at=LazyFunction(timezone.now),
            last_attempted_at=LazyFunction(timezone.now),
            finished_at=LazyFunction(timezone.now),
        )
        done = Trait(over=True, status=Job.Status.DONE, result="fine")
        failed = Trait(
            over=True, shelf=9, status=Job.Status.FAILED, errors=[ERROR], error_fingerprint="f" * 40
        )
        cancelled = Trait(over=True, status=Job.Status.CANCELLED)

    task: Any = "shop.tasks.send_receipt"
    task_path = LazyAttribute(lambda made: made.task if isinstance(made.task, str) else made.task.module_path)
    args: Any = LazyFunction(list[Any])
    kwargs: Any = LazyFunction(dict[str, Any])
    queue_name = LazyAttribute(lambda made: getattr(made.task, "queue_name", "default"))
    status = Job.Status.PENDING
    max_attempts = 5
    on_lost = "rerun"
    run_after = LazyFunction(timezone.now)
    enqueued_at = LazyFunction(timezone.now)


class QueueFactory(DjangoModelFactory[Queue]):
    """A queue with settings of its own."""

    class Meta:
        model = Queue

    name = Sequence(lambda n: f"queue-{n}")


class WorkerFactory(DjangoModelFactory[Worker]):
    """A worker process that has just sent its heartbeat."""

    class Meta:
        model = Worker

    id = Sequence(lambda n: n + 1)
    host = "app-1"
    pid = Sequence(lambda n: 1000 + n)
    supervisor = 1
    queues = LazyFunction(list[str])
    slots = 4
    version = "1.0"


class JobStatFactory(DjangoModelFactory[JobStat]):
    """The statistics of a task for one minute."""

    class Meta:
        model = JobStat

    minute = LazyFunction(lambda: timezone.now().replace(second=0, microsecond=0))
    queue_name = "default"
    task_path = "shop.tasks.send_receipt"
    done = 10
    wait_histogram = LazyFunction(lambda: [0] * (len(HISTOGRAM_BOUNDS) + 1))
    run_histogram = LazyFunction(lambda: [0] * (len(HISTOGRAM_BOUNDS) + 1))


class ScheduleFactory(DjangoModelFactory[Schedule]):
    """A schedule that someone has made in the admin: every minute, with the first tick ahead."""

    class Meta:
        model = Schedule

    name = Sequence(lambda n: f"schedule-{n}")
    task_path = "shop.tasks.send_receipt"
    cron = "* * * * *"
