"""``Job``: one call of a task, and everything that happened to it.

Two models use one partitioned table. ``Job`` is the whole table and is public. ``LiveJob`` is the leaf with
the jobs that are not finished, for queries that must be quick and must not wait for maintenance of the
history: a plan through the root locks every leaf. ``LiveJob`` is in a separate registry, so that nothing in
Django (flush, admin, relations) treats it as a second model of the project.
"""

from __future__ import annotations

import json
from datetime import timedelta
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, ClassVar

from django.apps.registry import Apps
from django.db import connections, models
from django.db.models import F
from django.db.models.expressions import DatabaseDefault
from django.db.models.functions import Now
from django.db.transaction import TransactionManagementError
from django.utils.translation import gettext_lazy as _

from ..compat import for_async
from ..exceptions import duration
from ..postgres import fetch_value
from ..postgres.aliases import write_alias
from ..tasks.misuse import Habits
from ..tasks.progress import HAS_PROGRESS, Progress, stored_progress
from ..tasks.unique import EnqueueOutcome
from . import changes
from .fields import ArrayColumn, InternalMeta, JSONColumn, PostgresMeta, ViewMeta
from .joins import Joins

_NOT_DELETED = (
    "Jobs cannot be deleted, because they would be missing from the history. Use "
    "job.cancel() to cancel a job. Finished jobs are removed after PGQUEUE['RETENTION'] and "
    "PGQUEUE['FAILED_RETENTION'], or after the retention of their Queue."
)


class Status(models.TextChoices):
    """The states of a job; the table ``pgqueue_status`` contains the same names."""

    PENDING = "pending", _("pending")
    RETRY = "retry", _("retry")
    RUNNING = "running", _("running")
    BLOCKED = "blocked", _("blocked")
    DONE = "done", _("done")
    FAILED = "failed", _("failed")
    CANCELLED = "cancelled", _("cancelled")

    @property
    def is_terminal(self) -> bool:
        """Whether the job is finished: done, failed or cancelled."""
        return self in {Status.DONE, Status.FAILED, Status.CANCELLED}

    @property
    def is_claimable(self) -> bool:
        """Whether a worker may claim the job once it is due."""
        return self in {Status.PENDING, Status.RETRY}


class UniqueScope(models.TextChoices):
    """How long no other job may have the same unique key."""

    WAITING = "waiting", _("while it waits")
    LIVE = "live", _("until it has finished")


MOST_SEARCHED = 200  # characters of an indexed argument, with its name


def is_indexed(*arguments: str) -> Any:
    """Return the condition that jobs have all of these arguments, such as ``order_id=17``, in their index.

    The ids are read first, as an array: in the order of the key, the planner might read all jobs instead.
    """
    return models.Func(
        F("pk"),
        models.Value([each[:MOST_SEARCHED] for each in arguments], ArrayColumn("text")),
        arg_joiner=" = ANY (ARRAY(SELECT held.id FROM pgqueue_job AS held WHERE held.searched @> ",
        template="%(expressions)s::text[]))",
        output_field=models.BooleanField(),
    )


class JobQuerySet(models.QuerySet["Job"]):
    """A queryset of jobs, with methods that change many jobs in one statement."""

    cancel, acancel = changes.cancel, changes.acancel
    retry, aretry = changes.retry, changes.aretry
    run_now, arun_now = changes.run_now, changes.arun_now
    edit, aedit = changes.edit, changes.aedit
    extend, aextend = changes.extend, changes.aextend

    def with_arguments(self, **values: Any) -> JobQuerySet:
        """Return the jobs of tasks that index these arguments (``search=``), with these values: texts,
        numbers, booleans or None.
        """
        texts = {name: each if isinstance(each, str) else json.dumps(each) for name, each in values.items()}
        return self.filter(is_indexed(*(f"{name}={text}" for name, text in texts.items())))

    def delete(self) -> tuple[int, dict[str, int]]:
        """Raise ``TypeError``, like ``Job.delete()``. Cancel jobs instead; finished jobs go later."""
        raise TypeError(_NOT_DELETED)

    delete.alters_data = delete.queryset_only = True  # type: ignore[attr-defined]


if TYPE_CHECKING:

    class _JobManager(models.Manager["Job"]):
        """``Job.objects`` for type checkers. Without Django's mypy plugin they would miss ``cancel()``."""

        def all(self) -> JobQuerySet: ...
        def filter(self, *args: Any, **kwargs: Any) -> JobQuerySet: ...
        def exclude(self, *args: Any, **kwargs: Any) -> JobQuerySet: ...
        def order_by(self, *fields: Any) -> JobQuerySet: ...
        def using(self, alias: str | None) -> JobQuerySet: ...
        def with_arguments(self, **values: Any) -> JobQuerySet: ...


class JobFields(models.Model):
    """The columns, in groups: what to do, where and when, policy, progress, outcome."""

    Status: ClassVar[type[Status]] = Status
    BORN: ClassVar[str] = "enqueued_at"

    enqueue_outcome: EnqueueOutcome | None = None
    """What ``enqueue`` did: "created"; or "existing" or "replaced", if this is another job with the same
    unique key. None for a job that was read from the database."""

    id = models.BigAutoField(primary_key=True)
    shelf = models.SmallIntegerField(_("shelf"), db_default=0, editable=False)
    status = models.CharField(
        _("status"), max_length=16, choices=Status.choices, db_default=Status.PENDING.value
    )

    task_path = models.CharField(_("task"), max_length=255)
    args = JSONColumn(_("arguments"), db_default=models.Value([], models.JSONField()))
    kwargs = JSONColumn(_("keyword arguments"), db_default=models.Value({}, models.JSONField()))
    metadata = JSONColumn(_("metadata"), db_default=models.Value({}, models.JSONField()))

    queue_name = models.CharField(_("queue"), max_length=100, db_default="default")
    priority = models.SmallIntegerField(_("priority"), db_default=0)
    run_after = models.DateTimeField(_("run after"), db_default=Now())
    expires_at = models.DateTimeField(_("expires at"), null=True, blank=True)
    enqueued_at = models.DateTimeField(_("enqueued at"), db_default=Now())

    max_attempts = models.IntegerField(_("maximum attempts"), null=True, blank=True)
    timeout = models.IntegerField(_("timeout in seconds"), null=True, blank=True)
    on_lost = models.CharField(_("if the worker is lost"), max_length=8, null=True, blank=True)
    limit_key = models.CharField(_("limit key"), max_length=200, null=True, blank=True, db_collation="C")
    group_key = models.CharField(_("group"), max_length=200, null=True, blank=True, db_collation="C")
    wait_position = models.BigIntegerField(
        _("place in the wait queue of its limit key"), null=True, blank=True
    )
    unique_key = models.CharField(_("unique key"), max_length=200, null=True, blank=True)
    unique_scope = models.CharField(
        _("unique"), max_length=8, choices=UniqueScope.choices, null=True, blank=True
    )
    context = JSONColumn(_("context"), null=True, blank=True)
    tenant = models.CharField(_("tenant"), max_length=63, null=True, blank=True, db_collation="C")
    # Not "batch" and "parents": for the job that is running, these are objects.
    batch_id = models.BigIntegerField(_("batch"), null=True, blank=True, db_column="batch")
    parent_ids = ArrayColumn("bigint", _("enqueued after"), null=True, blank=True, db_column="parents")
    searched = ArrayColumn("text", _("indexed arguments"), null=True, blank=True)

    attempts = models.IntegerField(_("attempts"), db_default=0)
    forgiven_attempts = models.IntegerField(_("attempts before the last manual retry"), db_default=0)
    crash_count = models.SmallIntegerField(_("crashes"), db_default=0)
    lost_in_a_row = models.SmallIntegerField(_("lost in a row"), db_default=0)
    marks = models.SmallIntegerField(_("marks"), db_default=0, editable=False)
    current_step = models.CharField(_("current step"), max_length=100, db_default="", blank=True)
    worker = models.BigIntegerField(_("worker"), null=True, blank=True)
    lease = models.BigIntegerField(_("lease"), null=True, blank=True)
    started_at = models.DateTimeField(_("first started at"), null=True, blank=True)
    last_attempted_at = models.DateTimeField(_("last attempted at"), null=True, blank=True)
    deadline = models.DateTimeField(_("deadline"), null=True, blank=True)
    cancel_requested_at = models.DateTimeField(_("cancel requested at"), null=True, blank=True)
    waiting_reason = models.CharField(_("reason"), max_length=500, db_default="", blank=True)

    finished_at = models.DateTimeField(_("finished at"), null=True, blank=True)
    duration = models.FloatField(_("duration in seconds"), null=True, blank=True)
    result = JSONColumn(_("result"), null=True, blank=True)
    steps = JSONColumn(_("steps"), null=True, blank=True)
    errors = JSONColumn(_("errors"), db_default=models.Value([], models.JSONField()))
    error_fingerprint = models.CharField(_("error fingerprint"), max_length=40, db_default="", blank=True)
    logs = JSONColumn(_("logs"), null=True, blank=True)

    class Meta:
        abstract = True

    @property
    def worker_ids(self) -> list[str]:
        """The worker of each attempt, oldest first.

        A job keeps only its first and last errors, and forgets who has done it when a user retries it.
        The list contains ``"?"`` for such attempts, so that its length is the number of attempts, as in
        ``django.tasks``.
        """
        ids = ["?"] * self.attempts
        for place, error in enumerate(self.errors, 1):
            attempt = error.get("attempt", place)
            if 1 <= attempt <= self.attempts:
                ids[attempt - 1] = str(error.get("worker", "?"))
        if self.worker is not None and ids:
            ids[-1] = str(self.worker)
        return ids

    @property
    def database(self) -> str:
        """The alias of the job's database. A job runs on a worker of this database."""
        return str(self._state.db)

    @property
    def user_id(self) -> int | str | None:
        """The primary key of the user for whom the job was enqueued, if CONTEXT has "user"."""
        return (self.context or {}).get("user")

    @property
    def traceparent(self) -> str | None:
        """The W3C trace context of the enqueue, such as "00-0af7...-b7ad...-01", if there was one."""
        traceparent: str | None = (self.context or {}).get("trace", {}).get("traceparent")
        return traceparent

    @property
    def cancel_requested(self) -> bool:
        """Whether the job was asked to stop."""
        return self.cancel_requested_at is not None

    @property
    def is_finished(self) -> bool:
        """Whether the job is done, failed or cancelled."""
        return self.finished_at is not None


_STACK_PAUSE = 0.02  # seconds between two checks for the answer of a worker


class Job(Habits, changes.Changes, Joins, JobFields):
    """One call of a task. Only ``enqueue``, ``cancel``, ``retry`` and the workers change its state.

    The methods that change it return whether they did, and leave the object as it was read:
    ``refresh_from_db()`` reads the change.
    """

    cancel = changes.of_one(changes.cancel)
    acancel = for_async(cancel)
    retry = changes.of_one(changes.retry)
    aretry = for_async(retry)
    run_now = changes.of_one(changes.run_now)
    arun_now = for_async(run_now)
    edit = changes.of_one(changes.edit)
    aedit = for_async(edit)
    extend = changes.of_one(changes.extend)
    aextend = for_async(extend)

    def request_stack(self) -> bool:
        """Ask the worker what the task of this job does now. Return whether it runs. See ``stack()``."""
        return bool(fetch_value(write_alias(self), "SELECT pgqueue_request_stack(%s)", self.pk))

    def stack(self, timeout: float | timedelta = 5.0) -> str:
        """Return what the task of this running job does now: its stack, as in a traceback, the innermost call
        last. Values of variables are not in it. It is empty just before and after the task.

        Raise ``ValueError`` if the job does not run, ``TimeoutError`` if its worker has not answered after
        ``timeout`` (seconds or a timedelta), and ``TransactionManagementError`` in a transaction of its
        database.
        """
        until, alias = monotonic() + duration("stack(timeout)", timeout), write_alias(self)
        if connections[alias].in_atomic_block:
            raise TransactionManagementError(
                f"Job {self.pk}: its worker sees the request only after the commit of the transaction of "
                f"{alias!r}. Call stack() outside of atomic()."
            )
        if not self.request_stack():
            raise ValueError(f"Job {self.pk} does not run.")
        answer = JobStack.objects.using(alias).filter(pk=self.pk, taken_at__isnull=False)
        while (found := answer.first()) is None:
            if monotonic() > until:
                raise TimeoutError(
                    f"The worker of job {self.pk} has not answered within {timeout} s. The task may have "
                    "ended, or is in a call into C that keeps the global interpreter lock."
                )
            sleep(_STACK_PAUSE)
        return found.lines

    request_stack.alters_data = stack.alters_data = True  # type: ignore[attr-defined]  # not in templates
    astack = for_async(stack)

    if TYPE_CHECKING:
        objects: ClassVar[_JobManager]
    else:
        objects = JobQuerySet.as_manager()

    class Meta(ViewMeta):
        db_table = "pgqueue_job"
        verbose_name = _("job")
        verbose_name_plural = _("jobs")
        permissions = (
            ("cancel_job", "Can cancel job"),
            ("retry_job", "Can retry job"),
            ("rerun_done_job", "Can run a done job again"),
            ("run_now_job", "Can run job now"),
            ("extend_job", "Can give a running job more time"),
            ("edit_job", "Can edit waiting job"),
            ("clone_job", "Can enqueue a copy of a job"),
            ("view_arguments_job", "Can view the arguments and results of jobs"),
        )

    def __str__(self) -> str:
        return f"{self.task_path} ({self.pk})"

    @property
    def progress(self) -> Progress | None:
        """What its task has last reported; None if it has not reported anything, or is done or cancelled.

        For a failed job: how far its last attempt came. This makes a query for a live job that has reported
        something, unless it was read with ``select_related("live_progress")``.
        """
        if self.is_finished:
            has_failed = self.status == Status.FAILED and self.errors
            return stored_progress(self.errors[-1].get("progress")) if has_failed else None
        # The job may have ended since it was read.
        row = getattr(self, "live_progress", None) if self.marks & HAS_PROGRESS else None
        return None if row is None else stored_progress(vars(row))

    def refresh_from_db(
        self, using: str | None = None, fields: Any = None, from_queryset: Any = None
    ) -> None:
        """Read the job again: all of it if only its id is known, as of an item of a ``JobList``."""
        known = [field.attname for field in self._meta.concrete_fields]
        if len(self.get_deferred_fields()) == len(known) - 1:
            fields = known
        super().refresh_from_db(using, fields, from_queryset)

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Insert a new row. Raise ``TypeError`` for an existing job, because only the queue changes it."""
        if not self._state.adding:
            raise TypeError(
                "An existing job cannot be saved, because only the queue changes its state. "
                "Use job.cancel(), job.retry() or job.edit(), or enqueue a new job."
            )
        super().save(*args, **kwargs)

    def delete(self, *args: Any, **kwargs: Any) -> tuple[int, dict[str, int]]:
        """Raise ``TypeError``. Cancel the job instead; maintenance removes finished jobs."""
        raise TypeError(_NOT_DELETED)


def enqueued_job(alias: str, pk: int, outcome: EnqueueOutcome) -> Job:
    """Return the job that an enqueue has made or found, as it is now. Of a finished one that a unique key has
    found and that is no longer kept, all but the id raises ``Job.DoesNotExist``.
    """
    job = Job.objects.using(alias).filter(pk=pk).first() or Job.from_db(alias, ["id"], [pk])
    job.enqueue_outcome = outcome
    return job


class LiveJob(JobFields):
    """The leaf with the jobs that are not finished. It is for reading; only the claim writes through it."""

    class Meta(PostgresMeta):
        db_table = "pgqueue_job_live"
        managed = False
        app_label = "django_pgqueue"
        apps = Apps()


class JobPayload(models.Model):
    """The abstract base of a model with a row for each job of one task: ``@task(payload=Receipt)``.

    A new row is a new job, whoever inserts it. From ``Job``, the row is ``job.<app label>_<model>``.
    """

    keep_rows: ClassVar[bool] = False
    """Whether rows stay when their jobs are no longer kept. False: maintenance deletes them then."""
    is_job_payload: ClassVar[bool] = True

    job = models.OneToOneField(
        Job,
        models.DO_NOTHING,
        primary_key=True,
        db_constraint=False,  # the job moves between the leaves of its table; the triggers take this place
        db_default=models.Func(
            models.Value("pgqueue_job_id_seq"), function="nextval", output_field=models.BigIntegerField()
        ),
        related_name="%(app_label)s_%(class)s",
        editable=False,
        verbose_name=_("job"),
    )

    class Meta:
        abstract = True

    def _is_pk_set(self, meta: Any = None) -> bool:
        """A key that the database will fill in is not set, as in Django 6.1: ``bulk_create()`` returns it."""
        return not isinstance(self._get_pk_val(meta), DatabaseDefault | None)


class DeclaredTask(models.Model):
    """A task of the code, with the policy that calls from SQL and rows of payloads give its jobs."""

    task_path = models.CharField(max_length=255, primary_key=True)
    queue_name = models.CharField(max_length=100)
    priority = models.SmallIntegerField()
    max_attempts = models.IntegerField(null=True)
    timeout = models.IntegerField(null=True)
    on_lost = models.CharField(max_length=8, null=True)
    expires_after = models.FloatField(null=True)
    metadata = models.JSONField(default=dict)
    limit_name = models.CharField(max_length=200, null=True)
    unique_options = models.JSONField(null=True)
    computed_keys = models.JSONField(default=list)
    search = models.JSONField(null=True)
    model = models.CharField(max_length=255, null=True)
    relation: Any = models.CharField(max_length=255, null=True)
    limit_column = models.CharField(max_length=63, null=True)
    group_column = models.CharField(max_length=63, null=True)
    keeps = models.BooleanField(db_default=False)
    swept_to = models.BigIntegerField(db_default=0)

    class Meta(InternalMeta):
        db_table = "pgqueue_task"
        managed = False  # so that a flush does not empty it


class JobProgress(models.Model):
    """What a live job has last reported, for ``Job.progress``."""

    job = models.OneToOneField(
        Job, models.DO_NOTHING, primary_key=True, db_constraint=False, related_name="live_progress"
    )
    at = models.DateTimeField(db_default=Now())
    done = models.FloatField()
    total = models.FloatField(null=True)
    note = models.CharField(max_length=200, db_default="")

    class Meta(InternalMeta):
        db_table = "pgqueue_progress"


class JobStack(models.Model):
    """What a job did when someone has asked for it (``Job.stack``), or when its process ended."""

    job_id = models.BigIntegerField(primary_key=True)
    lease = models.BigIntegerField()
    requested_at = models.DateTimeField(db_default=Now())
    taken_at = models.DateTimeField(null=True)
    at_end = models.BooleanField(db_default=False)
    lines = models.TextField(db_default="")

    class Meta(InternalMeta):
        db_table = "pgqueue_stack"


class Step(models.Model):
    """One step, sleep or event of a live job. ``Job.steps`` of others has the same as JSON."""

    class Kind(models.TextChoices):
        """What the job did."""

        STEP = "step", _("step")
        SLEEP = "sleep", _("sleep")
        EVENT = "event", _("event")
        TIMEOUT = "timeout", _("no event in time")

    pk = models.CompositePrimaryKey("job_id", "name")
    job_id = models.BigIntegerField(_("job"))
    name = models.CharField(_("name"), max_length=100)
    kind = models.CharField(_("kind"), max_length=8, choices=Kind.choices, db_default=Kind.STEP.value)
    attempt = models.IntegerField(_("attempt"), db_default=0)
    seconds = models.FloatField(_("duration in seconds"), null=True)
    wake_at = models.DateTimeField(_("wakes at"), null=True)
    finished_at = models.DateTimeField(_("finished at"), null=True)
    inputs = models.BigIntegerField(_("checksum of the arguments"), null=True)
    result = JSONColumn(_("result"), null=True)

    class Meta(InternalMeta):
        db_table = "pgqueue_step"
        verbose_name = _("step")
        verbose_name_plural = _("steps")


class QueueStatus(models.Model):
    """The names of a job's states, in the database for reports and other tools."""

    status = models.CharField(max_length=16, primary_key=True)
    is_claimable = models.BooleanField()
    is_terminal = models.BooleanField()

    class Meta(InternalMeta):
        db_table = "pgqueue_status"
        managed = False  # so that a flush does not empty it: RunSQL has filled it


class Ring(models.Model):
    """The ring of history, in one row. A worker that starts writes the retentions and MAX_JSON_BYTES here."""

    one = models.BooleanField(primary_key=True)
    current = models.SmallIntegerField()
    since = models.DateTimeField()
    retention = models.DurationField()
    failed_retention = models.DurationField()

    class Meta(InternalMeta):
        db_table = "pgqueue_ring"
        managed = False  # as above
