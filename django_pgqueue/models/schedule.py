"""``Schedule``: which task is enqueued when.

The definition of a schedule comes from code, settings, the admin or SQL. Its state (`Schedule.STATE`) belongs
to the round (``schedules/fire.py``) and to a trigger (``_pgqueue_schedule_changed``), so ``save()`` of an
existing row never writes the state: a run may have passed since the row was read.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _, pgettext_lazy

from ..compat import for_async
from ..exceptions import JobExists
from ..postgres import fetch_rows
from ..postgres.aliases import write_alias
from ..postgres.clock import server_now
from ..schedules.cron import LONGEST, SHORTEST, Timing
from ..schedules.policy import call_keys, known_policy, problems, scheduled_task
from ..tasks.task import find_task
from .fields import ArrayColumn, PostgresMeta, ViewMeta, both
from .job import Job, enqueued_job

MOST_CAUGHT_UP = 10_000
_TIMES = (datetime(1970, 1, 1, tzinfo=UTC), datetime(9000, 1, 1, tzinfo=UTC))


class Schedule(models.Model):
    """A task, its arguments, and when it is enqueued."""

    class CatchUp(models.TextChoices):
        """What happens to runs that passed while no worker was there."""

        SKIP = "skip", _("skip them")
        LATEST = "latest", _("run the latest")
        ALL = "all", _("run all, up to the limit")

    class Overlap(models.TextChoices):
        """What happens to a run while the previous job of the schedule has not finished."""

        ALLOW = "allow", _("run beside it")
        SKIP = "skip", _("skip the run")
        QUEUE = "queue", _("run after it")

    class Source(models.TextChoices):
        """Who declares the schedule."""

        CODE = "code", _("code")
        SETTINGS = "settings", _("settings")
        ADMIN = "admin", _("admin")

    #: What code and settings declare, and the admin may override.
    DECLARED: ClassVar[tuple[str, ...]] = (
        "task_path", "args", "kwargs", "queue_name", "priority", "cron", "every", "timezone", "catch_up",
        "catch_up_limit", "overlap", "jitter",
    )  # fmt: skip
    BORN: ClassVar[str] = "created_at"

    #: What only the round, the trigger and its methods write.
    STATE: ClassVar[frozenset[str]] = frozenset(
        ("paused_at", "pause_author", "pause_reason", "retired_at", "next_run_at", "last_run_at", "since",
         "owed", "live_jobs", "waiting", "created_at")
    )  # fmt: skip

    name = models.CharField(
        _("name"),
        max_length=200,
        primary_key=True,
        validators=[
            RegexValidator(
                r"\A[A-Za-z0-9_.:-]+\Z", _("Use only letters, digits and the characters _ - . and :")
            )
        ],
    )
    task_path = models.CharField(_("task"), max_length=255, help_text=_("For example: shop.tasks.report"))
    args = models.JSONField(_("positional arguments"), default=list, db_default=[], blank=True)
    kwargs = models.JSONField(_("keyword arguments"), default=dict, db_default={}, blank=True)
    queue_name = models.CharField(
        _("queue"), max_length=100, null=True, blank=True, help_text=_("Empty: the queue of the task.")
    )
    priority = models.SmallIntegerField(
        _("priority"),
        null=True,
        blank=True,
        validators=[MinValueValidator(-100), MaxValueValidator(100)],
        help_text=_("Empty: the priority of the task."),
    )
    cron = models.CharField(
        _("cron expression"),
        max_length=100,
        null=True,
        blank=True,
        help_text=_("Minute, hour, day, month, weekday. “0 3 * * 1-5”: weekdays at 3:00."),
    )
    every = models.DurationField(
        _("interval"), null=True, blank=True, help_text=_("Instead of a cron expression. “00:00:30”: 30 s.")
    )
    timezone = models.CharField(_("time zone"), max_length=64, **both("UTC"))
    catch_up = models.CharField(
        _("missed runs"), max_length=8, choices=CatchUp.choices, **both(CatchUp.LATEST)
    )
    catch_up_limit = models.IntegerField(
        pgettext_lazy("missed runs", "limit"),
        **both(100),
        validators=[MinValueValidator(1), MaxValueValidator(MOST_CAUGHT_UP)],
        help_text=_("The most missed runs that are caught up, and the most runs that wait for a job."),
    )
    overlap = models.CharField(
        _("while the previous job is not finished"),
        max_length=8,
        choices=Overlap.choices,
        **both(Overlap.ALLOW),
    )
    jitter = models.DurationField(
        _("jitter"), **both(timedelta(0)), help_text=_("Each job starts up to this much later, at random.")
    )

    source = models.CharField(
        _("declared in"), max_length=8, choices=Source.choices, **both(Source.ADMIN), editable=False
    )
    declared_by = models.CharField(_("module"), max_length=255, blank=True, **both(""), editable=False)
    declared = models.JSONField(_("declared values"), null=True, blank=True, editable=False)
    overridden = models.JSONField(
        _("overridden fields"), default=list, db_default=[], blank=True, editable=False
    )
    policy = models.JSONField(_("policy of the task"), null=True, blank=True, editable=False)
    """What the task says of its jobs, and the keys of this call, as a process saw it that knew the task."""

    paused_at = models.DateTimeField(_("paused at"), null=True, blank=True, editable=False)
    pause_author = models.CharField(_("paused by"), max_length=255, blank=True, **both(""), editable=False)
    pause_reason = models.CharField(_("reason"), max_length=500, blank=True, **both(""), editable=False)
    retired_at = models.DateTimeField(_("retired at"), null=True, blank=True, editable=False)
    next_run_at = models.DateTimeField(_("next run at"), null=True, blank=True, editable=False)
    """None: the next round computes it, from `since` and `last_run_at`."""
    last_run_at = models.DateTimeField(_("last run at"), null=True, blank=True, editable=False)
    since = models.DateTimeField(_("timing set at"), null=True, blank=True, editable=False)
    owed = models.JSONField(_("timings before"), null=True, blank=True, editable=False)
    """Timings that were edited while runs were due, each with its time. The next round fires these runs."""
    live_jobs = ArrayColumn("bigint", verbose_name=_("jobs that may be live"), default=list, db_default=[])
    waiting = models.IntegerField(_("waiting runs"), **both(0), editable=False)
    created_at = models.DateTimeField(_("created at"), db_default=Now(), editable=False)
    updated_at = models.DateTimeField(_("last changed"), db_default=Now(), editable=False)

    class Meta(PostgresMeta):
        db_table = "pgqueue_schedule"
        verbose_name = _("schedule")
        verbose_name_plural = _("schedules")
        permissions = (
            ("pause_schedule", "Can pause and resume schedule"),
            ("enqueue_schedule", "Can run schedule now"),
        )
        constraints = (
            models.CheckConstraint(
                condition=Q(cron__isnull=False, every__isnull=True)
                | Q(cron__isnull=True, every__isnull=False),
                name="pgqueue_schedule_timing",
                violation_error_message=_("Set either a cron expression or an interval."),
            ),
            models.CheckConstraint(
                condition=Q(every__isnull=True) | Q(every__range=(SHORTEST, LONGEST)),
                name="pgqueue_schedule_every",
                violation_error_message=_("The interval must be from 1 second to 3660 days."),
            ),
            models.CheckConstraint(
                condition=Q(jitter__gte=timedelta(0)) & (Q(every__isnull=True) | Q(jitter__lte=F("every"))),
                name="pgqueue_schedule_jitter",
                violation_error_message=_("The jitter must be from zero to the interval."),
            ),
            models.CheckConstraint(
                condition=Q(
                    catch_up__in=["skip", "latest", "all"],
                    overlap__in=["allow", "skip", "queue"],
                    source__in=["code", "settings", "admin"],
                    catch_up_limit__range=(1, MOST_CAUGHT_UP),
                ),
                name="pgqueue_schedule_choices",
                violation_error_message=_("An option has a value that does not exist."),
            ),
            # PostgreSQL also has infinite times. With one of them, no supervisor could compute when to look.
            models.CheckConstraint(
                condition=(Q(next_run_at__isnull=True) | Q(next_run_at__range=_TIMES))
                & (Q(last_run_at__isnull=True) | Q(last_run_at__range=_TIMES))
                & (Q(since__isnull=True) | Q(since__range=_TIMES)),
                name="pgqueue_schedule_times",
            ),
        )

    def __str__(self) -> str:
        return self.name

    @property
    def timing(self) -> Timing:
        """When it is due."""
        return Timing(self.cron, self.every, self.timezone)

    @property
    def is_active(self) -> bool:
        """Whether it is neither paused nor retired."""
        return self.paused_at is None and self.retired_at is None

    def pause(self, *, reason: str = "", author: str = "") -> bool:
        """Let it fire nothing until it is resumed. Return False if it was paused already.

        ``reason`` and ``author`` are shown with it. Raise ``Schedule.DoesNotExist`` if it was deleted.
        """
        return self._change(paused_at=Now(), pause_author=author[:255], pause_reason=reason[:500])

    apause = for_async(pause)

    def resume(self) -> bool:
        """Go on with the next run from now on. Return False if it was not paused.

        Missed runs are not caught up. Raise ``Schedule.DoesNotExist`` if it was deleted.
        """
        return self._change(paused_at=None, pause_author="", pause_reason="")

    aresume = for_async(resume)

    def enqueue(self) -> Job:
        """Enqueue one job of it now, and return the job. The runs do not change. A paused one does it, too.

        This is like `django_pgqueue.enqueue` if the task is unique, so it may return the other job (see
        ``job.enqueue_outcome``), or raise `JobExists` or `InvalidKey`. Raise ``Schedule.DoesNotExist`` if it
        was deleted.
        """
        alias = write_alias(self)
        stored = Schedule.objects.using(alias).get(pk=self.pk)
        stored._refresh_policy(alias)
        query = "SELECT id, outcome FROM _pgqueue_enqueue_schedule(%s)"
        [(pk, outcome)] = fetch_rows(alias, query, [stored.pk])
        options = (stored.policy or {}).get("options") or {}
        if outcome == "existing" and options.get("on_conflict") == "raise":
            raise JobExists(f"Job {pk} has the unique key of the schedule {stored.pk!r}.", pk)
        return enqueued_job(alias, pk, outcome)

    aenqueue = for_async(enqueue)

    def _refresh_policy(self, alias: str) -> None:
        """Store the keys of the call as they are now, if this process can import the task.

        Race: a user may change the call at this moment. Then the policy of the old one is not written.
        """
        call = {"task_path": self.task_path, "args": self.args, "kwargs": self.kwargs}
        policy = known_policy(**call)
        if policy is not None and "problem" in policy:
            task = scheduled_task(find_task(self.task_path), self.args, self.kwargs)
            call_keys(task, self.args, self.kwargs)  # one of them raises what `enqueue` raises
        if policy is None or policy == self.policy:
            return
        self.policy = policy
        Schedule.objects.using(alias).filter(pk=self.pk, **call).update(policy=policy)

    def _change(self, *, paused_at: Now | None, **columns: str) -> bool:
        alias = write_alias(self)
        rows = Schedule.objects.using(alias).filter(pk=self.pk, paused_at__isnull=paused_at is not None)
        changed = rows.update(paused_at=paused_at, **columns)
        self.refresh_from_db(alias, ["paused_at", *columns])
        return bool(changed)

    def clean(self) -> None:
        """Refuse what could never run: the timing, the task, arguments that do not fit it."""
        self.cron, self.queue_name = self.cron or None, self.queue_name or None
        if wrong := problems(self):
            raise ValidationError(dict(wrong))

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Save the definition; of an existing row, nothing else. Note what differs from what is declared."""
        if self.declared is not None:
            self.overridden = differences(definition_of(self), self.declared)
        # A process that does not know the task leaves the policy to one that does.
        self.policy = known_policy(self.task_path, self.args, self.kwargs) or self.policy
        if not self._state.adding and kwargs.get("update_fields") is None and not kwargs.get("force_insert"):
            alias = kwargs.get("using") or write_alias(self)
            self.updated_at = server_now(alias)
            kwargs["update_fields"] = [
                field.name
                for field in self._meta.concrete_fields
                if field.name not in self.STATE and not field.primary_key
            ]
        super().save(*args, **kwargs)


def definition_of(schedule: Any) -> dict[str, Any]:
    """Return the definition of a row, or a declaration, as JSON has it: durations are in seconds."""
    values = ((name, getattr(schedule, name)) for name in Schedule.DECLARED)
    return {name: value.total_seconds() if isinstance(value, timedelta) else value for name, value in values}


def differences(definition: Mapping[str, Any], declared: Mapping[str, Any]) -> list[str]:
    """Return the names of the fields that differ. Cron and every are one choice, so they differ together."""
    names = {name for name in Schedule.DECLARED if definition[name] != declared.get(name)}
    if names & {"cron", "every"}:
        names |= {"cron", "every"}
    return sorted(names)


class ScheduleRun(models.Model):
    """A time at which a schedule was due, and what came of it. The constraint lets a run become one job."""

    class Outcome(models.TextChoices):
        """What came of a run."""

        ENQUEUED = "enqueued", _("enqueued")
        WAITING = "waiting", _("waiting for the previous job")
        SKIPPED = "skipped", _("skipped, because the previous job was not finished")
        EXISTING = "existing", _("skipped, because another job had its unique key")
        REPLACED = "replaced", _("took the place of a waiting job with its unique key")
        MISSED = "missed", _("missed, because no worker was there")
        MANUAL = "manual", _("enqueued by a user")

    id = models.BigAutoField(primary_key=True)
    schedule = models.ForeignKey(
        Schedule,
        models.CASCADE,
        related_name="runs",
        db_column="schedule",
        db_index=False,
        verbose_name=_("schedule"),
    )
    run_at = models.DateTimeField(_("run at"))
    job_id = models.BigIntegerField(_("job"), null=True)
    outcome = models.CharField(_("outcome"), max_length=8, choices=Outcome.choices)

    class Meta(ViewMeta):
        db_table = "pgqueue_schedule_run"
        verbose_name = _("run")
        verbose_name_plural = _("runs")
        constraints = (models.UniqueConstraint(fields=["schedule", "run_at"], name="pgqueue_run_once"),)
        indexes = (models.Index(fields=["run_at"], name="pgqueue_run_age"),)

    def __str__(self) -> str:
        return f"{self.schedule_id} {self.run_at:%Y-%m-%d %H:%M:%S}"
