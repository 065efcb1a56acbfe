"""``JobProgress``: how far a live job is, if it has reported it."""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from .job import Job

__all__ = ["JobProgress"]


class JobProgress(models.Model):
    """What a job that is not over has last reported. ``Job.progress`` is the same, without a query if the job
    was read with ``select_related("live_progress")``.
    """

    job = models.OneToOneField(
        Job, models.DO_NOTHING, primary_key=True, db_constraint=False, related_name="live_progress"
    )
    at = models.DateTimeField(_("reported at"), db_default=Now())
    done = models.FloatField(_("done"))
    total = models.FloatField(_("total"), null=True)
    note = models.CharField(_("note"), max_length=200, db_default="")

    class Meta:
        db_table = "pgqueue_progress"
        required_db_vendor = "postgresql"
        default_permissions = ()
        verbose_name = _("progress")
        verbose_name_plural = _("progress")

    def __str__(self) -> str:
        return f"{self.done:g} ({self.job_id})"
