"""``Job``: one call of a task, with its life.

Two models look at one partitioned table. ``Job`` is the whole of it, for everybody. ``LiveJob`` is the leaf
with the jobs that are not over, for what must be quick and must not wait for upkeep of the history: a plan
through the root locks every leaf. ``LiveJob`` lives in a registry of its own, so that nothing in Django
(flush, admin, relations) takes it for a second model of the project.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from asgiref.sync import sync_to_async
from django.apps.registry import Apps
from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from . import changes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from django.db.models.base import ModelBase

__all__ = ["Job", "JobQuerySet", "LiveJob", "Status"]


_NOT_DELETED = (
    "A job is not deleted, it would be lost from the history: use django_pgqueue.cancel(job); "
    "history is emptied after PGQUEUE['RETENTION'], or set Queue.keep_done and keep_failed."
)


class Status(models.TextChoices):
    """The states of a job; the table ``pgqueue_status`` holds the same words."""

    PENDING = "pending", _("pending")
    RETRY = "retry", _("retry")
    RUNNING = "running", _("running")
    BLOCKED = "blocked", _("blocked")
    DONE = "done", _("done")
    FAILED = "failed", _("failed")
    CANCELLED = "cancelled", _("cancelled")

    @property
    def is_terminal(self) -> bool:
        """Whether the job is over."""
        return self in {Status.DONE, Status.FAILED, Status.CANCELLED}

    @property
    def is_claimable(self) -> bool:
        """Whether a worker may claim the job once it is due."""
        return self in {Status.PENDING, Status.RETRY}


class JobQuerySet(models.QuerySet["Job"]):
    """Jobs, and what may be done with many of them: each in one statement."""

    def cancel(self) -> int:
        """Cancel these jobs; running ones are asked to stop. Returns how many rows changed."""
        return changes.change_all(changes.CANCEL, self)

    async def acancel(self) -> int:
        """Like ``cancel()``, for async code."""
        return await sync_to_async(self.cancel)()

    def retry(self) -> int:
        """Run these jobs again now, with a fresh budget of attempts. Returns how many rows changed."""
        return changes.change_all(changes.RETRY, self)

    async def aretry(self) -> int:
        """Like ``retry()``, for async code."""
        return await sync_to_async(self.retry)()

    def delete(self) -> tuple[int, dict[str, int]]:
        """Refused with ``TypeError``, like ``Job.delete()``: cancel the jobs; history empties itself."""
        raise TypeError(_NOT_DELETED)

    # Not from templates, and not on the manager: ``Job.objects.cancel()`` would mean every job there is.
    _method: Any
    for _method in (cancel, acancel, retry, aretry, delete):
        _method.alters_data = True
        _method.queryset_only = True
    del _method


if TYPE_CHECKING:

    class JobManager(models.Manager["Job"]):
        """``Job.objects`` for type checkers: those without Django's mypy plugin would lose ``cancel()``."""

        def all(self) -> JobQuerySet: ...
        def filter(self, *args: Any, **kwargs: Any) -> JobQuerySet: ...
        def exclude(self, *args: Any, **kwargs: Any) -> JobQuerySet: ...
        def order_by(self, *fields: Any) -> JobQuerySet: ...
        def using(self, alias: str | None) -> JobQuerySet: ...


class JobFields(models.Model):
    """The columns, in groups: what to do, where and when, policy, life, outcome."""

    Status: ClassVar[type[Status]] = Status

    id = models.BigAutoField(primary_key=True)
    shelf = models.SmallIntegerField(_("shelf"), db_default=0, editable=False)
    status = models.CharField(
        _("status"), max_length=16, choices=Status.choices, db_default=Status.PENDING.value
    )

    task_path = models.CharField(_("task"), max_length=255)
    args = models.JSONField(_("arguments"), db_default=models.Value([], models.JSONField()))
    kwargs = models.JSONField(_("keyword arguments"), db_default=models.Value({}, models.JSONField()))
    metadata = models.JSONField(_("metadata"), db_default=models.Value({}, models.JSONField()))

    queue_name = models.CharField(_("queue"), max_length=100, db_default="default")
    priority = models.SmallIntegerField(_("priority"), db_default=0)
    run_after = models.DateTimeField(_("run after"), db_default=Now())
    expires_at = models.DateTimeField(_("expires at"), null=True, blank=True)
    enqueued_at = models.DateTimeField(_("enqueued at"), db_default=Now())

    max_attempts = models.IntegerField(_("attempts at most"), null=True, blank=True)
    timeout = models.IntegerField(_("timeout in seconds"), null=True, blank=True)
    on_lost = models.CharField(_("when its worker is lost"), max_length=8, null=True, blank=True)

    attempts = models.IntegerField(_("attempts"), db_default=0)
    forgiven_attempts = models.IntegerField(_("attempts before the last retry by hand"), db_default=0)
    crash_count = models.SmallIntegerField(_("crashes"), db_default=0)
    worker = models.BigIntegerField(_("worker"), null=True, blank=True)
    lease = models.BigIntegerField(_("lease"), null=True, blank=True)
    started_at = models.DateTimeField(_("first started at"), null=True, blank=True)
    last_attempted_at = models.DateTimeField(_("last attempted at"), null=True, blank=True)
    deadline = models.DateTimeField(_("deadline"), null=True, blank=True)
    cancel_requested_at = models.DateTimeField(_("asked to stop at"), null=True, blank=True)
    waiting_reason = models.CharField(_("reason"), max_length=500, db_default="", blank=True)

    finished_at = models.DateTimeField(_("finished at"), null=True, blank=True)
    duration = models.FloatField(_("duration in seconds"), null=True, blank=True)
    result = models.JSONField(_("result"), null=True, blank=True)
    errors = models.JSONField(_("errors"), db_default=models.Value([], models.JSONField()))
    error_fingerprint = models.CharField(
        _("fingerprint of the error"), max_length=40, db_default="", blank=True
    )

    class Meta:
        abstract = True

    @property
    def worker_ids(self) -> list[str]:
        """The worker of each attempt, oldest first.

        A job remembers its first and its last errors only; for attempts in between the list holds ``"?"``,
        so that its length is the number of attempts, as ``django.tasks`` has it.
        """
        known = [str(error.get("worker", "?")) for error in self.errors]
        if self.worker is not None and len(known) < self.attempts:
            known.append(str(self.worker))
        gap = max(0, self.attempts - len(known))
        middle = (len(known) + 1) // 2
        return [*known[:middle], *["?"] * gap, *known[middle:]]

    @property
    def cancel_requested(self) -> bool:
        """Whether the job was asked to stop."""
        return self.cancel_requested_at is not None

    @property
    def is_over(self) -> bool:
        """Whether the job is done, failed or cancelled."""
        return self.finished_at is not None


class Job(JobFields):
    """One call of a task. Its state is changed by ``enqueue``, ``cancel``, ``retry`` and the worker only."""

    if TYPE_CHECKING:
        objects: ClassVar[JobManager]
    else:
        objects = JobQuerySet.as_manager()

    class Meta:
        db_table = "pgqueue_job"
        required_db_vendor = "postgresql"
        verbose_name = _("job")
        verbose_name_plural = _("jobs")
        # What the admin offers: nobody adds, changes or deletes a job by hand.
        default_permissions = ("view",)
        permissions = (
            ("cancel_job", "Can cancel job"),
            ("retry_job", "Can retry job"),
            ("rerun_done_job", "Can run a done job again"),
            ("run_job", "Can run job now"),
            ("extend_job", "Can give a running job more time"),
        )

    def __str__(self) -> str:
        return f"{self.task_path} ({self.pk})"

    def save(
        self,
        *,
        force_insert: bool | tuple[ModelBase, ...] = False,
        force_update: bool = False,
        using: str | None = None,
        update_fields: Iterable[str] | None = None,
    ) -> None:
        """Insert a new row. Raises ``TypeError`` on a job that exists: its state belongs to the queue."""
        if not self._state.adding:
            raise TypeError(
                "A job that exists is not saved, its state belongs to the queue: "
                "use django_pgqueue.cancel(job) or django_pgqueue.retry(job), or enqueue a new job."
            )
        super().save(
            force_insert=force_insert, force_update=force_update, using=using, update_fields=update_fields
        )

    def delete(self, using: Any = None, keep_parents: bool = False) -> tuple[int, dict[str, int]]:
        """Refused with ``TypeError``: cancel the job; history empties itself."""
        raise TypeError(_NOT_DELETED)


class LiveJob(JobFields):
    """The leaf with the jobs that are not over. Read it; nothing writes through it but the claim."""

    class Meta:
        db_table = "pgqueue_job_live"
        managed = False
        required_db_vendor = "postgresql"
        app_label = "django_pgqueue"
        apps = Apps()
