"""``Edge``: which job waits for which job or batch."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

__all__ = ["Edge"]


class Edge(models.Model):
    """A job, the child, waits for a job or a batch, the parent, which is not over or has failed.

    When the parent ends, its edges are deleted. ``Job.parents`` contains its id then, too.
    """

    class IfFailed(models.TextChoices):
        """What becomes of the child if its parent fails."""

        HOLD = "hold", _("wait until it is retried")
        CANCEL = "cancel", _("cancel")
        RUN = "run", _("run all the same")

    pk = models.CompositePrimaryKey("parent_id", "child_id")
    parent_id = models.BigIntegerField(_("parent"))
    child_id = models.BigIntegerField(_("child"))
    if_failed = models.CharField(
        _("if the parent fails"), max_length=6, choices=IfFailed.choices, db_default=IfFailed.HOLD.value
    )
    overdue = models.CharField(_("end that upkeep has to settle"), max_length=16, null=True)

    class Meta:
        db_table = "pgqueue_edge"
        required_db_vendor = "postgresql"
        default_permissions = ()
        verbose_name = _("dependency")
        verbose_name_plural = _("dependencies")

    def __str__(self) -> str:
        return f"{self.child_id} after {self.parent_id}"
