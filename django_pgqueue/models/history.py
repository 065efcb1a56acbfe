"""Two small tables that RunSQL creates and fills: a flush between tests must not empty them."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _


class QueueStatus(models.Model):
    """The words for the states of a job, in the database for reports and foreign tools."""

    status = models.CharField(_("status"), max_length=16, primary_key=True)
    is_claimable = models.BooleanField(_("may be claimed"))
    is_terminal = models.BooleanField(_("is over"))

    class Meta:
        db_table = "pgqueue_status"
        managed = False
        required_db_vendor = "postgresql"
        default_permissions = ()
        verbose_name = _("status")
        verbose_name_plural = _("statuses")

    def __str__(self) -> str:
        return self.status


class Ring(models.Model):
    """Where the ring of history stands: one row. ``PGQUEUE`` sets its times when a worker starts."""

    one = models.BooleanField(primary_key=True)
    current = models.SmallIntegerField(_("current shelf"))
    since = models.DateTimeField(_("since"))
    retention = models.DurationField(_("retention"))
    failed_retention = models.DurationField(_("retention of failed jobs"))

    class Meta:
        db_table = "pgqueue_ring"
        managed = False
        required_db_vendor = "postgresql"
        default_permissions = ()
        verbose_name = _("ring of history")
        verbose_name_plural = _("rings of history")

    def __str__(self) -> str:
        return f"shelf {self.current} since {self.since}"
