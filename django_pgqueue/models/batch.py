"""``JobBatch``: jobs that others can wait for together. ``Tally``: how many there are, and how they ended."""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

__all__ = ["JobBatch", "Tally"]


class JobBatch(models.Model):
    """A batch. Its members are the jobs with its id in ``Job.batch``."""

    class Outcome(models.TextChoices):
        """How a batch ended: as failed if a member failed, otherwise as cancelled if one was cancelled."""

        DONE = "done", _("done")
        FAILED = "failed", _("failed")
        CANCELLED = "cancelled", _("cancelled")

    id = models.BigAutoField(primary_key=True)
    name = models.CharField(_("name"), max_length=200, db_default="", blank=True)
    is_open = models.BooleanField(_("open for more members"), db_default=True)
    created_at = models.DateTimeField(_("created at"), db_default=Now())
    cancel_requested_at = models.DateTimeField(_("cancel requested at"), null=True, blank=True)
    over_at = models.DateTimeField(_("over at"), null=True, blank=True)
    outcome = models.CharField(
        _("outcome"), max_length=16, choices=Outcome.choices, db_default="", blank=True
    )

    class Meta:
        db_table = "pgqueue_batch"
        required_db_vendor = "postgresql"
        verbose_name = _("batch")
        verbose_name_plural = _("batches")
        # For the admin, where nobody adds, changes or deletes a batch.
        default_permissions = ("view",)

    def __str__(self) -> str:
        return f"{self.name} ({self.pk})" if self.name else str(self.pk)

    @property
    def is_over(self) -> bool:
        """Whether all members are over, and no more are expected."""
        return self.over_at is not None


class Tally(models.Model):
    """Numbers of members of a batch: the sum of its rows counts."""

    pk = models.CompositePrimaryKey("batch_id", "slot")
    batch_id = models.BigIntegerField(_("batch"))
    slot = models.BigIntegerField(_("slot"))
    added = models.IntegerField(_("added"), db_default=0)
    done = models.IntegerField(_("done"), db_default=0)
    failed = models.IntegerField(_("failed"), db_default=0)
    cancelled = models.IntegerField(_("cancelled"), db_default=0)

    class Meta:
        db_table = "pgqueue_tally"
        required_db_vendor = "postgresql"
        default_permissions = ()
        verbose_name = _("numbers of a batch")
        verbose_name_plural = _("numbers of batches")

    def __str__(self) -> str:
        return f"{self.batch_id}: {self.added}"
