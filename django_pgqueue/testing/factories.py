"""Factories for rows in every state of a job, with the values that the queue itself would write.

They need factory-boy, which the extra ``testing`` installs.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from django.db import transaction
from django.db.models import F
from django.utils import timezone

try:
    from factory.declarations import LazyAttribute, LazyFunction, Sequence, Trait
    from factory.django import DjangoModelFactory
    from factory.helpers import post_generation
except ImportError as error:
    raise ImportError(
        "The factories of django_pgqueue need factory-boy. Install it, or the extra `testing` of dj-pgqueue."
    ) from error

from ..models import Edge, Job, JobBatch, JobStat, Queue, Schedule, Tally, Worker
from ..models.statistics import HISTOGRAM_BOUNDS
from ..tasks.links import HAS_CHILDREN, IN_BATCH

__all__ = [
    "ERROR", "BatchFactory", "JobFactory", "JobStatFactory", "PayloadFactory", "QueueFactory",
    "ScheduleFactory", "WorkerFactory",
]  # fmt: skip

NOW: Any = LazyFunction(timezone.now)

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


def _ahead(**parts: float) -> Any:
    """Return the time that lies ahead by this much."""
    return LazyFunction(lambda: timezone.now() + timedelta(**parts))


def _reason(made: Any) -> str:
    live = [str(each.pk) for each in made.parents if not each.is_finished]
    return f"waits for job{'s' if len(live) > 1 else ''} {', '.join(live)}" if live else ""


def _count(batch: int, alias: str, **numbers: int) -> None:
    tally, _ = Tally.objects.using(alias).get_or_create(batch_id=batch, slot=0)
    for name, number in numbers.items():
        setattr(tally, name, getattr(tally, name) + number)
    tally.save(using=alias)


class JobFactory(DjangoModelFactory[Job]):
    """A pending job that is due: ``JobFactory(task=send_receipt, args=[7])``.

    ``task``: a task, or its path. ``parents``: the jobs and batches that it runs after; it waits for the
    unfinished ones. ``batch``: the batch that it belongs to, which counts it. The other states are traits:
    ``JobFactory(failed=True)``, ``scheduled``, ``retrying``, ``blocked``, ``running``, ``done``,
    ``cancelled``, ``expired``.
    """

    class Meta:
        model = Job
        exclude = ("task", "parents", "batch")

    class Params:
        """The other states."""

        scheduled = Trait(run_after=_ahead(hours=1))
        retrying = Trait(status=Job.Status.RETRY, attempts=1, errors=[ERROR], run_after=_ahead(minutes=1))
        blocked = Trait(status=Job.Status.BLOCKED, waiting_reason="waits for another job")
        expired = Trait(expires_at=_ahead(minutes=-1))
        begun = Trait(attempts=1, worker=7, started_at=NOW, last_attempted_at=NOW)
        running = Trait(begun=True, status=Job.Status.RUNNING, lease=Sequence(lambda n: n + 1))
        over = Trait(begun=True, shelf=1, finished_at=NOW)
        done = Trait(over=True, status=Job.Status.DONE, result="fine")
        failed = Trait(
            over=True, shelf=9, status=Job.Status.FAILED, errors=[ERROR], error_fingerprint="f" * 40
        )
        cancelled = Trait(over=True, status=Job.Status.CANCELLED)

    task: Any = "shop.tasks.send_receipt"
    parents: Any = ()
    batch: Any = None
    parent_ids = LazyAttribute(lambda made: [each.pk for each in made.parents] or None)
    batch_id = LazyAttribute(lambda made: getattr(made.batch, "pk", made.batch))
    marks = LazyAttribute(lambda made: 0 if made.batch is None else IN_BATCH)
    task_path = LazyAttribute(lambda made: made.task if isinstance(made.task, str) else made.task.module_path)
    args: Any = LazyFunction(list[Any])
    kwargs: Any = LazyFunction(dict[str, Any])
    queue_name = LazyAttribute(lambda made: getattr(made.task, "queue_name", "default"))
    status = LazyAttribute(lambda made: Job.Status.BLOCKED if _reason(made) else Job.Status.PENDING)
    waiting_reason = LazyAttribute(_reason)
    max_attempts = 5
    on_lost = "rerun"
    run_after = NOW
    enqueued_at = NOW

    @classmethod
    def _generate(cls, strategy: str, params: dict[str, Any]) -> Any:
        """Name the states that are not wanted: about each unknown one, factory_boy writes a long error."""
        unsaid = cls._meta.parameters.keys() - cls._meta.pre_declarations.as_dict().keys()
        return super()._generate(strategy, {**dict.fromkeys(unsaid, False), **params})  # type: ignore[no-untyped-call]

    @classmethod
    def _create(cls, model_class: Any, *args: Any, **kwargs: Any) -> Job:
        """Write what the job waits for, and count it in its batch, as an enqueue does."""
        job: Job = super()._create(model_class, *args, **kwargs)  # type: ignore[no-untyped-call]
        alias = str(job._state.db)
        if job.parent_ids and not job.is_finished:
            # An edge to each parent that has not finished. A parent that is a job is marked.
            jobs = Job.objects.using(alias).filter(pk__in=job.parent_ids, shelf=0)
            batches = JobBatch.objects.using(alias).filter(pk__in=job.parent_ids, finished_at=None)
            live = [*jobs.values_list("pk", flat=True), *batches.values_list("pk", flat=True)]
            Edge.objects.using(alias).bulk_create(Edge(parent_id=each, child_id=job.pk) for each in live)
            jobs.update(marks=F("marks").bitor(HAS_CHILDREN))
        if job.batch_id is not None:
            ended = {job.status: 1} if job.is_finished else {}
            _count(job.batch_id, alias, added=1, **ended)
        return job


class BatchFactory(DjangoModelFactory[JobBatch]):
    """A batch that runs: ``BatchFactory(name="import", numbers={"added": 5, "done": 3})``.

    ``numbers``: its counts; jobs of ``JobFactory(batch=batch)`` are added to them. The other
    states are traits: ``is_open``, and ``over`` with the ``outcome`` "done".
    """

    class Meta:
        model = JobBatch
        skip_postgeneration_save = True

    class Params:
        """The other states."""

        over = Trait(finished_at=NOW, outcome="done")

    name = Sequence(lambda n: f"batch-{n}")
    is_open = False

    @post_generation  # type: ignore[untyped-decorator]
    def numbers(self: Any, create: bool, extracted: Mapping[str, int] | None, **_: Any) -> None:
        """Count jobs that do not exist."""
        if create and extracted:
            _count(self.pk, str(self._state.db), **extracted)


class PayloadFactory(DjangoModelFactory[Any]):
    """The base of factories for payload models: ``ReceiptFactory(job=JobFactory.build(failed=True))``.

    Without ``job``, a row is a new job, as everywhere. With a job that was built, but not saved, the row gets
    that job, in any state. Its task is that of the model.
    """

    class Meta:
        abstract = True

    @classmethod
    def _create(cls, model_class: type[Any], *args: Any, **kwargs: Any) -> Any:
        job: Job | None = kwargs.pop("job", None)
        with transaction.atomic():
            row = super()._create(model_class, *args, **kwargs)  # type: ignore[no-untyped-call]
            if job is not None:
                new = Job.objects.using(row._state.db).get(pk=row.pk)
                job.pk, job.task_path = row.pk, new.task_path
                Job.objects.using(new._state.db).filter(pk=row.pk)._raw_delete(new._state.db)
                job.save(force_insert=True)
                row.job = job
        return row


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
    """A schedule that someone has made in the admin: every minute, with the first run ahead."""

    class Meta:
        model = Schedule

    name = Sequence(lambda n: f"schedule-{n}")
    task_path = "shop.tasks.send_receipt"
    cron = "* * * * *"
