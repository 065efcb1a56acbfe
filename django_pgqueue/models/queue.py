"""Queues and workers, and what holds jobs back: pauses, limits, rates, and windows of unique keys.

A queue without a row uses the defaults, and without a ``Pause`` work goes on. The name of a ``Limit`` is the
part of a job's ``limit_key`` before the slash, ``queue:<name>`` for all jobs of a queue, or ``*`` for all
jobs. Rows of limits are written by ``set_limit()``, by the admin, and by workers, for what the code declares.
"""

from __future__ import annotations

from datetime import timedelta
from typing import ClassVar

from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _, pgettext_lazy

from .fields import ArrayColumn, InternalMeta, PostgresMeta, ViewMeta, both


class Queue(models.Model):
    """The settings of one queue; an empty field means that the value in ``PGQUEUE`` is used."""

    name = models.CharField(
        _("name"),
        max_length=100,
        primary_key=True,
        validators=[
            RegexValidator(r"\A[A-Za-z0-9_.-]+\Z", _("Use only letters, digits and the characters _ - ."))
        ],
    )
    retention = models.DurationField(
        _("keep done and cancelled jobs for"),
        null=True,
        blank=True,
        help_text=_("“90 00:00:00” means 90 days. Zero keeps nothing; empty uses RETENTION."),
    )
    failed_retention = models.DurationField(
        _("keep failed jobs for"),
        null=True,
        blank=True,
        help_text=_("“90 00:00:00” means 90 days. Zero keeps nothing; empty uses FAILED_RETENTION."),
    )
    backoff_base = models.FloatField(
        _("first wait before a retry, in seconds"), null=True, blank=True, validators=[MinValueValidator(0)]
    )
    backoff_ceiling = models.FloatField(
        _("longest wait before a retry, in seconds"), null=True, blank=True, validators=[MinValueValidator(0)]
    )

    class Meta(PostgresMeta):
        db_table = "pgqueue_queue"
        verbose_name = _("queue")
        verbose_name_plural = _("queues")

    def __str__(self) -> str:
        return self.name


class PauseKind(models.TextChoices):
    """What is paused."""

    QUEUE = "queue", _("queue")
    TASK = "task", _("task")
    ALL = "all", _("everything")
    GROUP = "group", _("group")
    LIMIT_KEY = "limit_key", _("limit key")
    ARGUMENT = "argument", _("argument")


#: The condition on pauses that have not ended by themselves.
IN_FORCE = Q(until__isnull=True) | Q(until__gt=Now())


class Pause(models.Model):
    """One pause. ``pause()`` and ``resume()`` write it, because they notify the workers."""

    Kind = PauseKind

    id = models.BigAutoField(primary_key=True)
    kind = models.CharField(pgettext_lazy("pause", "what"), max_length=16, choices=PauseKind.choices)
    name = models.CharField(
        _("name"),
        max_length=255,
        blank=True,
        db_default="",
        help_text=_(
            "The name of a queue, the path of a task, a group, a limit key such as crm/acme, or a task and "
            "an argument, such as shop.tasks.sync kwargs.tenant=acme. Empty for everything."
        ),
    )
    reason = models.CharField(_("reason"), max_length=400, blank=True, db_default="")
    author = models.CharField(_("paused by"), max_length=150, blank=True, db_default="")
    paused_at = models.DateTimeField(_("paused at"), db_default=Now())
    until = models.DateTimeField(_("until"), null=True, blank=True)

    class Meta(PostgresMeta):
        db_table = "pgqueue_pause"
        verbose_name = _("pause")
        verbose_name_plural = _("pauses")
        constraints = (
            models.UniqueConstraint(fields=["kind", "name"], name="pgqueue_pause_target"),
            models.CheckConstraint(
                condition=Q(kind__in=["queue", "task", "group", "limit_key", "argument"]) & ~Q(name="")
                | Q(kind="all", name=""),
                name="pgqueue_pause_kind",
            ),
        )

    def __str__(self) -> str:
        return f"{self.get_kind_display()} {self.name}".strip()


_AT_LEAST_ONE = [
    MinValueValidator(1, _("At least 1. To let no job start, pause the queue or the task.")),
    MaxValueValidator(2**31 - 1),
]


class Limit(models.Model):
    """How many jobs may run at once, or start in a period, and what happens to one that finds no room."""

    class OnFull(models.TextChoices):
        """What happens to a job that finds no room."""

        WAIT = "wait", _("it waits")
        CANCEL_NEW = "cancel_new", _("it is cancelled")
        CANCEL_OLD = "cancel_old", _("it replaces older ones")

    name = models.CharField(
        _("name"),
        max_length=200,
        primary_key=True,
        validators=[
            RegexValidator(r"\A[^/]+\Z", _("Leave out the slash: a limit applies to each of its keys."))
        ],
        help_text=_("The path of a task, a name in code, “queue:mail” for a queue, “*” for all jobs."),
    )
    concurrency = models.IntegerField(_("jobs at once"), null=True, blank=True, validators=_AT_LEAST_ONE)
    on_full = models.CharField(
        _("a job that finds no room"), max_length=10, choices=OnFull.choices, db_default=OnFull.WAIT.value
    )
    rate = models.IntegerField(_("starts"), null=True, blank=True, validators=_AT_LEAST_ONE)
    per = models.DurationField(
        _("in a period of"),
        null=True,
        blank=True,
        help_text=_("The time in which so many jobs may start, such as 0:01:00."),
    )
    burst = models.IntegerField(
        _("burst"),
        null=True,
        blank=True,
        validators=[MinValueValidator(1, _("At least 1.")), MaxValueValidator(2**31 - 1)],
        help_text=_("How many may start at once after a quiet time. Empty: 1."),
    )
    declared_concurrency = models.IntegerField(_("declared in code"), null=True, blank=True, editable=False)
    declared_rate = models.IntegerField(null=True, blank=True, editable=False)
    declared_per = models.DurationField(null=True, blank=True, editable=False)
    declared_burst = models.IntegerField(null=True, blank=True, editable=False)
    declared_by = models.CharField(max_length=255, db_default="", blank=True, editable=False)
    """The module of a task that declares it; empty if the code does not declare it."""
    is_overridden = models.BooleanField(_("set by a user"), db_default=False, editable=False)

    class Meta(PostgresMeta):
        db_table = "pgqueue_limit"
        verbose_name = _("limit")
        verbose_name_plural = _("limits")
        constraints = (
            models.CheckConstraint(condition=Q(concurrency__gte=1), name="pgqueue_limit_concurrency"),
            models.CheckConstraint(
                condition=Q(burst=None, per=None, rate=None)
                | Q(burst__gte=1, per__gt=timedelta(0), rate__gte=1),
                name="pgqueue_limit_rate",
            ),
            models.CheckConstraint(
                condition=Q(on_full__in=["wait", "cancel_new", "cancel_old"]), name="pgqueue_limit_on_full"
            ),
        )

    def __str__(self) -> str:
        return self.name

    @property
    def is_declared(self) -> bool:
        """Whether the code declares this limit."""
        return self.declared_concurrency is not None or self.declared_rate is not None


class RateState(models.Model):
    """How many starts of a rate are in use. Only the claim and ``take()`` read and write it."""

    key = models.CharField(max_length=200, primary_key=True, db_collation="C")
    tat = models.DateTimeField()

    class Meta(InternalMeta):
        db_table = "pgqueue_rate"


class UniqueWindow(models.Model):
    """Until when a unique key is taken, even if the job with it has finished. Maintenance deletes it then."""

    unique_key = models.CharField(max_length=200, primary_key=True)
    job_id = models.BigIntegerField()
    until = models.DateTimeField()

    class Meta(InternalMeta):
        db_table = "pgqueue_window"


class Worker(models.Model):
    """One worker process. It is registered before its first claim and removed when it stops.

    Heartbeats update this narrow table and no jobs. A worker in another language, registered by
    ``pgqueue_register_worker``, has no supervisor. Its ``pid`` is 0 if it has not given it.
    """

    BORN: ClassVar[str] = "started_at"

    id = models.BigIntegerField(_("id"), primary_key=True)
    host = models.CharField(_("host"), max_length=255)
    pid = models.IntegerField(_("process"))
    supervisor = models.BigIntegerField(_("supervisor"), null=True, blank=True)
    queues = ArrayColumn("text", verbose_name=_("queues"), default=list)
    exclude_queues = ArrayColumn("text", verbose_name=_("all queues but"), default=list, db_default=[])
    slots = models.IntegerField(_("slots"))
    lost = models.IntegerField(_("slots taken by lost jobs"), **both(0))
    """Slots of jobs that were given back, and whose tasks have not ended here."""
    version = models.CharField(_("version"), max_length=50)
    state = models.CharField(
        _("state"),
        max_length=10,
        choices=[("running", pgettext_lazy("worker", "running")), ("draining", _("draining"))],
        db_default="running",
    )
    last_group = models.CharField(
        _("group of its last job"), max_length=200, blank=True, db_default="", editable=False
    )
    """Written by claims by SQL, which take the groups in turn."""
    drain = models.CharField(
        _("asked to end"),
        max_length=8,
        choices=[("replace", _("to be replaced")), ("stop", _("with all its processes"))],
        db_default="",
        blank=True,
    )
    holds_lock = models.BooleanField(
        _("holds its lock"),
        db_default=True,
        help_text=_("Its process holds a session lock while it lives, except behind a pooler."),
    )
    started_jobs = ArrayColumn(
        "bigint", verbose_name=_("jobs that had started at the last heartbeat"), null=True
    )
    memory = models.BigIntegerField(_("memory in bytes"), null=True, blank=True)
    """The resident memory of its process, which it writes every ten seconds; None if that is not known."""
    started_at = models.DateTimeField(_("started at"), db_default=Now())
    heartbeat_at = models.DateTimeField(_("last heartbeat"), db_default=Now())

    class Meta(ViewMeta):
        db_table = "pgqueue_worker"
        permissions = (("drain_worker", "Can stop or replace worker"),)
        verbose_name = _("worker")
        verbose_name_plural = _("workers")

    def __str__(self) -> str:
        return f"{self.host}:{self.pid}" if self.pid else self.host
