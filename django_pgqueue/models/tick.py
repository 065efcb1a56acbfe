"""``ScheduleTick``: the times at which schedules were due, and what came of them."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from .schedule import Schedule

__all__ = ["ScheduleTick"]


class ScheduleTick(models.Model):
    """A time at which a schedule was due, and what came of it.

    Its unique constraint is the guarantee that a tick becomes one job.
    """

    class Outcome(models.TextChoices):
        """What came of a tick."""

        ENQUEUED = "enqueued", _("enqueued")
        WAITING = "waiting", _("waiting for the previous job")
        SKIPPED = "skipped", _("skipped, because the previous job was not over")
        EXISTING = "existing", _("skipped, because another job had its unique key")
        REPLACED = "replaced", _("took the place of a waiting job with its unique key")
        MISSED = "missed", _("missed, because no worker was there")
        MANUAL = "manual", _("run by hand")

    id = models.BigAutoField(primary_key=True)
    schedule = models.ForeignKey(
        Schedule,
        models.CASCADE,
        related_name="ticks",
        db_column="schedule",
        db_index=False,
        verbose_name=_("schedule"),
    )
    tick = models.DateTimeField(_("tick"))
    job_id = models.BigIntegerField(_("job"), null=True)
    outcome = models.CharField(_("outcome"), max_length=8, choices=Outcome.choices)

    class Meta:
        db_table = "pgqueue_tick"
        required_db_vendor = "postgresql"
        default_permissions = ("view",)
        verbose_name = _("tick")
        verbose_name_plural = _("ticks")
        constraints = (models.UniqueConstraint(fields=["schedule", "tick"], name="pgqueue_tick_once"),)
        indexes = (models.Index(fields=["tick"], name="pgqueue_tick_age"),)

    def __str__(self) -> str:
        return f"{self.schedule_id} {self.tick:%Y-%m-%d %H:%M:%S}"
