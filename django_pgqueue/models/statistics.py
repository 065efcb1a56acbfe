"""What ran, what failed, and what alerts have reported.

``JobStat`` is what ran in each minute: workers count in memory and add their figures every few seconds.
Maintenance adds minutes that have passed to ``StatRollup``: to their quarter of an hour, their hour, their
day, and the total, for the task, for all tasks of the queue, and for all queues. A row of ``JobStat`` that
is not ``rolled_up`` is not in any of them, so each attempt is counted once, in one or in the other. If a
worker adds to a minute later, as it does after a job that has run for long, this makes another row.

``FailureGroup`` is failures with the same fingerprint, so with the same error at the same place in the code.
A report of failed attempts adds a ``FailureNote``. Every few seconds, maintenance adds the notes to the
groups and to ``FailureCount``, which has the numbers by time, task, queue and version.
"""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _, pgettext_lazy

from .fields import ArrayColumn, InternalMeta, ViewMeta

#: Upper bounds of the histogram classes in seconds: 1 ms, doubled up to 70 minutes. One more counts the rest.
HISTOGRAM_BOUNDS = tuple(0.001 * 2**k for k in range(23))


class Counts(models.Model):
    """How the attempts of one task in one queue ended, and how long they waited and ran."""

    queue_name = models.CharField(_("queue"), max_length=100)
    task_path = models.CharField(_("task"), max_length=255)
    done = models.BigIntegerField(pgettext_lazy("number of jobs", "done"), default=0)
    failed = models.BigIntegerField(pgettext_lazy("number of jobs", "failed"), default=0)
    retried = models.BigIntegerField(pgettext_lazy("number of jobs", "retried"), default=0)
    cancelled = models.BigIntegerField(pgettext_lazy("number of jobs", "cancelled"), default=0)
    wait_histogram = ArrayColumn("bigint", verbose_name=_("waiting times"), default=list)
    run_histogram = ArrayColumn("bigint", verbose_name=_("running times"), default=list)
    wait_seconds = models.FloatField(_("seconds waited"), default=0)
    run_seconds = models.FloatField(_("seconds run"), default=0)

    class Meta:
        abstract = True


class JobStat(Counts):
    """One minute of one task in one queue: how its jobs ended, and how long they waited and ran."""

    id = models.BigAutoField(primary_key=True)
    minute = models.DateTimeField(_("minute"))
    rolled_up = models.BooleanField(_("rolled up"), default=False, editable=False)

    class Meta(ViewMeta):
        db_table = "pgqueue_stat"
        verbose_name = _("statistic")
        verbose_name_plural = _("tasks")
        constraints = (
            models.UniqueConstraint(
                fields=["minute", "queue_name", "task_path", "rolled_up"], name="pgqueue_stat_key"
            ),
        )

    def __str__(self) -> str:
        return f"{self.minute:%Y-%m-%d %H:%M} {self.queue_name} {self.task_path}"


class StatSpan(models.TextChoices):
    """What a row of ``StatRollup`` covers."""

    MINUTE = "minute", _("minute")
    QUARTER = "quarter", _("quarter of an hour")
    HOUR = "hour", _("hour")
    DAY = "day", _("day")
    TOTAL = "total", _("total")


class StatRollup(Counts):
    """The sums of the minutes of one task in one queue, of all tasks if the path is empty, or of all queues
    if both names are. Sums of single minutes are of all tasks; sums of everything are of one task, and begin
    at the epoch.
    """

    id = models.BigAutoField(primary_key=True)
    span = models.CharField(_("span"), max_length=8, choices=StatSpan.choices)
    start = models.DateTimeField(_("start"))
    updated_at = models.DateTimeField(_("last changed at"), db_default=Now())

    class Meta(InternalMeta):
        db_table = "pgqueue_stat_rollup"
        verbose_name = _("sum of statistics")
        verbose_name_plural = _("sums of statistics")
        constraints = (
            models.UniqueConstraint(
                fields=["span", "start", "queue_name", "task_path"], name="pgqueue_stat_rollup_key"
            ),
        )


class FailureGroup(models.Model):
    """Failures with the same fingerprint, with the newest one as a sample."""

    fingerprint = models.CharField(_("fingerprint"), max_length=40, primary_key=True)
    error_class = models.CharField(_("error class"), max_length=255)
    message = models.CharField(_("message"), max_length=500)
    traceback = models.TextField(_("traceback"))
    sample_job = models.BigIntegerField(_("newest job"))
    failed = models.BigIntegerField(pgettext_lazy("number of jobs", "failed"), db_default=0)
    retried = models.BigIntegerField(pgettext_lazy("number of jobs", "retried"), db_default=0)
    first_seen = models.DateTimeField(_("first seen"))
    last_seen = models.DateTimeField(_("last seen"))
    tasks = ArrayColumn("text", verbose_name=_("tasks"), default=list)
    versions = ArrayColumn("text", verbose_name=_("versions"), default=list)
    is_news = models.BooleanField(_("new or changed"), db_default=True, editable=False)
    """Whether no alert has said that it is new, or that a change has ended that it was muted."""
    alerted = models.BigIntegerField(_("failed at the last alert"), db_default=0, editable=False)
    muted_at = models.DateTimeField(_("muted at"), null=True, blank=True)
    muted_by = models.CharField(_("muted by"), max_length=150, db_default="", blank=True)

    class Meta(InternalMeta):
        db_table = "pgqueue_failure_group"
        # It is shown to users who may view jobs.
        permissions = (("mute_failuregroup", "Can mute group of failures"),)
        verbose_name = _("group of failures")
        verbose_name_plural = _("groups of failures")

    def __str__(self) -> str:
        return f"{self.error_class}: {self.message}" if self.message else self.error_class


class FailureCount(models.Model):
    """How many attempts of a group failed in a quarter of an hour, an hour, or a day."""

    id = models.BigAutoField(primary_key=True)
    span = models.CharField(_("span"), max_length=8)
    start = models.DateTimeField(_("start"))
    fingerprint = models.CharField(_("fingerprint"), max_length=40)
    task_path = models.CharField(_("task"), max_length=255)
    queue_name = models.CharField(_("queue"), max_length=100)
    version = models.CharField(_("version"), max_length=50)
    failed = models.BigIntegerField(pgettext_lazy("number of jobs", "failed"), default=0)
    retried = models.BigIntegerField(pgettext_lazy("number of jobs", "retried"), default=0)

    class Meta(InternalMeta):
        db_table = "pgqueue_failure_count"
        verbose_name = _("count of failures")
        verbose_name_plural = _("counts of failures")
        constraints = (
            models.UniqueConstraint(
                fields=["span", "start", "fingerprint", "task_path", "queue_name", "version"],
                name="pgqueue_failure_count_key",
            ),
        )
        indexes = (models.Index(fields=["fingerprint", "span", "start"], name="pgqueue_failure_count_group"),)


class FailureNote(models.Model):
    """Failed attempts of one report that are in no group yet."""

    id = models.BigAutoField(primary_key=True)
    at = models.DateTimeField(db_default=Now())
    fingerprint = models.CharField(max_length=40)
    task_path = models.CharField(max_length=255)
    queue_name = models.CharField(max_length=100)
    version = models.CharField(max_length=50)
    failed = models.IntegerField()
    retried = models.IntegerField()
    job_id = models.BigIntegerField()
    error_class = models.CharField(max_length=255)
    message = models.CharField(max_length=500)
    traceback = models.TextField()

    class Meta(InternalMeta):
        db_table = "pgqueue_failure_note"


class RaisedAlert(models.Model):
    """A problem that lasts, or ended a short while ago. The kind "look" has the time of the last look."""

    id = models.BigAutoField(primary_key=True)
    kind = models.CharField(max_length=20)
    queue_name = models.CharField(max_length=100, blank=True)
    text = models.TextField()
    raised_at = models.DateTimeField()
    over_since = models.DateTimeField(null=True)

    class Meta(InternalMeta):
        db_table = "pgqueue_alert"
        constraints = (models.UniqueConstraint(fields=["kind", "queue_name"], name="pgqueue_alert_key"),)
