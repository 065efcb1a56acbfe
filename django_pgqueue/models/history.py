"""Two small tables that RunSQL creates and fills. They are unmanaged, so that a flush does not empty them."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _


class QueueStatus(models.Model):
    """The names of a job's states, in the database for reports and other tools."""

    status = models.CharField(_("status"), max_length=16, primary_key=True)
    is_claimable = models.BooleanField(_("may be claimed"))
    is_terminal = models.BooleanField(_("is finished"))

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
    """The position of the ring of history, in one row. A worker that starts writes the retentions of
    ``PGQUEUE`` here.
    """

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
