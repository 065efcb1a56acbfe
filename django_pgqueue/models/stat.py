"""``JobStat``: what ran in each minute. Workers count in memory and add their figures every few seconds."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from .fields import ArrayColumn

#: Upper bounds of the histogram classes in seconds: 1 ms, doubled up to 70 minutes. One more class after the
#: last bound counts the rest.
HISTOGRAM_BOUNDS = tuple(0.001 * 2**k for k in range(23))


class JobStat(models.Model):
    """One minute of one task in one queue: how its jobs ended, and how long they waited and ran."""

    id = models.BigAutoField(primary_key=True)
    minute = models.DateTimeField(_("minute"))
    queue_name = models.CharField(_("queue"), max_length=100)
    task_path = models.CharField(_("task"), max_length=255)
    done = models.BigIntegerField(_("done"), default=0)
    failed = models.BigIntegerField(_("failed"), default=0)
    retried = models.BigIntegerField(_("retried"), default=0)
    cancelled = models.BigIntegerField(_("cancelled"), default=0)
    wait_histogram = ArrayColumn("bigint", verbose_name=_("waiting times"), default=list)
    run_histogram = ArrayColumn("bigint", verbose_name=_("running times"), default=list)
    wait_seconds = models.FloatField(_("seconds waited"), default=0)
    run_seconds = models.FloatField(_("seconds run"), default=0)

    class Meta:
        db_table = "pgqueue_stat"
        required_db_vendor = "postgresql"
        default_permissions = ("view",)
        verbose_name = _("statistic")
        verbose_name_plural = _("statistics")
        constraints = (
            models.UniqueConstraint(fields=["minute", "queue_name", "task_path"], name="pgqueue_stat_key"),
        )

    def __str__(self) -> str:
        return f"{self.minute:%Y-%m-%d %H:%M} {self.queue_name} {self.task_path}"
