"""``JobStat``: what ran in each minute. Workers count in memory and add their figures every few seconds.

Maintenance adds minutes that are over to ``StatRollup``: to their quarter of an hour, their hour, their day,
and the total, for the task and for all tasks of the queue. A row of ``JobStat`` that is not ``rolled_up`` yet
is not in any of them, so each attempt is counted once, in one or in the other. If a worker adds to a minute
later, as it does after a job that has run for long, this makes another row.
"""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

from .fields import ArrayColumn

#: Upper bounds of the histogram classes in seconds: 1 ms, doubled up to 70 minutes. One more class after the
#: last bound counts the rest.
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

    class Meta:
        db_table = "pgqueue_stat"
        required_db_vendor = "postgresql"
        default_permissions = ("view",)
        verbose_name = _("statistic")
        verbose_name_plural = _("tasks")
        constraints = (
            models.UniqueConstraint(
                fields=["minute", "queue_name", "task_path", "rolled_up"], name="pgqueue_stat_key"
            ),
        )

    def __str__(self) -> str:
        return f"{self.minute:%Y-%m-%d %H:%M} {self.queue_name} {self.task_path}"


class Span(models.TextChoices):
    """What a row of ``StatRollup`` covers."""

    MINUTE = "minute", _("minute")
    QUARTER = "quarter", _("quarter of an hour")
    HOUR = "hour", _("hour")
    DAY = "day", _("day")
    TOTAL = "total", _("total")


class StatRollup(Counts):
    """The sums of the minutes of one task in one queue, or of all tasks if the path is empty. Sums of single
    minutes are of all tasks; sums of everything are of one task, and begin at the epoch.
    """

    id = models.BigAutoField(primary_key=True)
    span = models.CharField(_("span"), max_length=8, choices=Span.choices)
    start = models.DateTimeField(_("start"))
    updated_at = models.DateTimeField(_("last changed at"), db_default=Now())

    class Meta:
        db_table = "pgqueue_stat_rollup"
        required_db_vendor = "postgresql"
        default_permissions = ()
        verbose_name = _("sum of statistics")
        verbose_name_plural = _("sums of statistics")
        constraints = (
            models.UniqueConstraint(
                fields=["span", "start", "queue_name", "task_path"], name="pgqueue_stat_rollup_key"
            ),
        )

    def __str__(self) -> str:
        return f"{self.span} {self.start:%Y-%m-%d %H:%M} {self.queue_name} {self.task_path}"
