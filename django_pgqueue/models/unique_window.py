"""``UniqueWindow``: until when a unique key is taken, even if the job that was enqueued with it is over."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _


class UniqueWindow(models.Model):
    """The window of one key. ``pgqueue_insert_unique_v1`` writes it, and upkeep deletes it at its end."""

    unique_key = models.CharField(_("unique key"), max_length=200, primary_key=True)
    job_id = models.BigIntegerField(_("job"))
    until = models.DateTimeField(_("until"))

    class Meta:
        db_table = "pgqueue_window"
        required_db_vendor = "postgresql"
        default_permissions = ()
        verbose_name = _("window of a unique key")
        verbose_name_plural = _("windows of unique keys")

    def __str__(self) -> str:
        return self.unique_key
