"""``JobProgress``: how far a live job is, if it has reported it."""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from .fields import JSONColumn
from .job import Job


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


# ----------------------------------------------------------------------------
# ``Step``: what a live job has recorded of its steps, sleeps and signals.


class Step(models.Model):
    """One step of a job that is not over. For other jobs, ``Job.steps`` contains the same as JSON."""

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

    class Meta:
        db_table = "pgqueue_step"
        required_db_vendor = "postgresql"
        default_permissions = ()
        verbose_name = _("step")
        verbose_name_plural = _("steps")

    def __str__(self) -> str:
        return f"{self.name} ({self.job_id})"
