"""``RaisedAlert``: the problems that alerts have told and that are not over."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _


class RaisedAlert(models.Model):
    """A problem that lasts, or that ended a short while ago. The row of the kind "look" has the time of the
    last look."""

    id = models.BigAutoField(primary_key=True)
    kind = models.CharField(_("kind"), max_length=20)
    queue_name = models.CharField(_("queue"), max_length=100, blank=True)
    text = models.TextField(_("text"))
    raised_at = models.DateTimeField(_("raised at"))
    over_since = models.DateTimeField(_("over since"), null=True)

    class Meta:
        db_table = "pgqueue_alert"
        required_db_vendor = "postgresql"
        default_permissions = ()
        verbose_name = _("alert")
        verbose_name_plural = _("alerts")
        constraints = (models.UniqueConstraint(fields=["kind", "queue_name"], name="pgqueue_alert_key"),)

    def __str__(self) -> str:
        return self.text
