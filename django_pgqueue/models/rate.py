"""``Rate``: how many starts of a rate are in use. Only the claim and ``take()`` read and write it."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _


class Rate(models.Model):
    """The state of one key. ``pgqueue_charge_v1`` writes it, and upkeep deletes it when it is over."""

    key = models.CharField(_("concurrency key"), max_length=200, primary_key=True, db_collation="C")
    tat = models.DateTimeField(_("theoretical arrival time"))

    class Meta:
        db_table = "pgqueue_rate"
        required_db_vendor = "postgresql"
        default_permissions = ()
        verbose_name = _("state of a rate")
        verbose_name_plural = _("states of rates")

    def __str__(self) -> str:
        return self.key
