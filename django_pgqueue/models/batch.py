"""Batches, which others can wait for together, and the edges between jobs and what they wait for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self

from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _, pgettext_lazy

from ..exceptions import ParentGone
from .fields import InternalMeta, ViewMeta
from .job import Job
from .joins import Joins


class BatchCounts(NamedTuple):
    """How many jobs a batch has, by their states."""

    added: int
    """All that have ever been added."""
    done: int
    """The jobs that have succeeded."""
    failed: int
    """The jobs that have failed."""
    cancelled: int
    """The jobs that were cancelled."""

    @property
    def live(self) -> int:
        """The jobs that have not ended."""
        return self.added - self.done - self.failed - self.cancelled


def counts_of(alias: str, batches: Sequence[int]) -> dict[int, BatchCounts]:
    """Count the members of each of these batches."""
    numbers = {name: models.Sum(name) for name in BatchCounts._fields}
    rows: Any = Tally.objects.using(alias).filter(batch_id__in=batches).values("batch_id")
    found = {row.pop("batch_id"): BatchCounts(**row) for row in rows.annotate(**numbers)}
    return {batch: found.get(batch, BatchCounts(0, 0, 0, 0)) for batch in batches}


class JobBatch(Joins, models.Model):
    """A batch, as ``Batch`` reads it. Its members are the jobs with its id in ``Job.batch_id``."""

    class Outcome(models.TextChoices):
        """How a batch ended: as failed if a member failed, otherwise as cancelled if one was cancelled."""

        DONE = "done", pgettext_lazy("batch", "done")
        FAILED = "failed", pgettext_lazy("batch", "failed")
        CANCELLED = "cancelled", pgettext_lazy("batch", "cancelled")

    is_batch = True
    BORN: ClassVar[str] = "created_at"

    id = models.BigAutoField(primary_key=True)
    name = models.CharField(_("name"), max_length=200, db_default="", blank=True)
    is_open = models.BooleanField(_("open for more members"), db_default=True)
    created_at = models.DateTimeField(_("created at"), db_default=Now())
    cancel_requested_at = models.DateTimeField(_("cancel requested at"), null=True, blank=True)
    finished_at = models.DateTimeField(_("finished at"), null=True, blank=True)
    outcome = models.CharField(
        _("outcome"), max_length=16, choices=Outcome.choices, db_default="", blank=True
    )

    class Meta(ViewMeta):
        db_table = "pgqueue_batch"
        verbose_name = _("batch")
        verbose_name_plural = _("batches")

    def __str__(self) -> str:
        return f"{self.name} ({self.pk})" if self.name else str(self.pk)

    @property
    def is_finished(self) -> bool:
        """Whether all members have finished, and no more are expected."""
        return self.finished_at is not None

    @property
    def status(self) -> str:
        """Its outcome, or "open" or "running"."""
        return self.outcome or ("open" if self.is_open else "running")

    def results(self) -> list[Any]:
        """Return the results of its members that are kept, in the order in which they were added."""
        jobs = Job.objects.using(self._state.db).filter(batch_id=self.pk)
        return list(jobs.order_by("pk").values_list("result", flat=True))


class Tally(models.Model):
    """Numbers of members of a batch: the sum of its rows counts."""

    pk = models.CompositePrimaryKey("batch_id", "slot")
    batch_id = models.BigIntegerField()
    slot = models.BigIntegerField()
    added = models.IntegerField(db_default=0)
    done = models.IntegerField(db_default=0)
    failed = models.IntegerField(db_default=0)
    cancelled = models.IntegerField(db_default=0)

    class Meta(InternalMeta):
        db_table = "pgqueue_tally"


class Edge(models.Model):
    """A job, the child, waits for a job or a batch, the parent, which is live or has failed.

    When the parent ends, its edges are deleted. ``Job.parents`` contains its id then, too.
    """

    class IfFailed(models.TextChoices):
        """What becomes of the child if its parent fails."""

        HOLD = "hold", _("wait until it is retried")
        CANCEL = "cancel", _("cancel")
        RUN = "run", _("run all the same")

    pk = models.CompositePrimaryKey("parent_id", "child_id")
    parent_id = models.BigIntegerField()
    child_id = models.BigIntegerField()
    if_failed = models.CharField(max_length=6, choices=IfFailed.choices, db_default=IfFailed.HOLD.value)
    overdue = models.CharField(max_length=16, null=True)

    class Meta(InternalMeta):
        db_table = "pgqueue_edge"


class Parents(Mapping[int, Job]):
    """The jobs that a job was enqueued after, by id, in the order in which they were given. See `batches`."""

    def __init__(self, ids: Sequence[int], jobs: Mapping[int, Job], batches: Mapping[int, JobBatch]) -> None:
        self._ids, self._jobs = ids, jobs
        self._batches = {each: batches[each] for each in ids if each in batches}

    @classmethod
    def read(cls, ids: Sequence[int], alias: str) -> Self:
        """Read the parents with these ids."""
        jobs = Job.objects.using(alias).in_bulk(ids)
        others = [each for each in ids if each not in jobs]
        return cls(ids, jobs, JobBatch.objects.using(alias).in_bulk(others))

    @property
    def batches(self) -> dict[int, JobBatch]:
        """The batches that the job was enqueued after, by their ids."""
        return self._batches

    @property
    def gone(self) -> list[int]:
        """The ids of the parents that are no longer kept, because their retention has ended."""
        return [each for each in self._ids if each not in self._jobs and each not in self.batches]

    @cached_property
    def results_of_batches(self) -> dict[int, list[Any]]:
        """The results of the jobs of each batch, in the order in which they were added."""
        return {each: batch.results() for each, batch in self.batches.items()}

    @property
    def results(self) -> list[Any]:
        """The results, in the order in which the parents were given.

        That of a batch is a list, with the results of its jobs in the order in which they were added. The
        result of a job that did not succeed is None. Raise ``ParentGone`` if one is no longer kept.
        """
        of_batches = self.results_of_batches
        return [of_batches[each] if each in of_batches else self[each].result for each in self._ids]

    def __getitem__(self, job: int | Job) -> Job:
        key = job.pk if isinstance(job, Job) else job
        if key in self._jobs:
            return self._jobs[key]
        if key not in self._ids:
            raise KeyError(f"The job was not enqueued after {key!r}, but after: {self._ids}")
        if key in self.batches:
            raise KeyError(f"{key} is a batch: use parents.batches[{key}]")
        raise ParentGone(
            f"Job {key} is no longer kept, so nothing is known about its end. See RETENTION, and "
            "the retention of its Queue."
        )

    def __contains__(self, job: object) -> bool:
        key = job.pk if isinstance(job, Job) else job
        return key in self._ids and key not in self.batches

    def __iter__(self) -> Iterator[int]:
        return (each for each in self._ids if each not in self.batches)

    def __len__(self) -> int:
        return len(self._ids) - len(self.batches)

    def __repr__(self) -> str:
        return f"<Parents {self._ids}>"
