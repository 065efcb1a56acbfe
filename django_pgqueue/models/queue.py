"""``Queue``: the settings of a queue. A queue without a row uses the defaults."""

from __future__ import annotations

from django.core.validators import MinValueValidator, RegexValidator
from django.db import models
from django.utils.translation import gettext_lazy as _


class Queue(models.Model):
    """The settings of one queue; an empty field means that the value in ``PGQUEUE`` is used."""

    name = models.CharField(
        _("name"),
        max_length=100,
        primary_key=True,
        validators=[
            RegexValidator(r"\A[A-Za-z0-9_.-]+\Z", _("Use only letters, digits and the characters _ - ."))
        ],
    )
    keep_done = models.DurationField(
        _("keep done and cancelled jobs for"),
        null=True,
        blank=True,
        help_text=_("“90 00:00:00” means 90 days. Zero keeps nothing; empty uses RETENTION."),
    )
    keep_failed = models.DurationField(
        _("keep failed jobs for"),
        null=True,
        blank=True,
        help_text=_("“90 00:00:00” means 90 days. Zero keeps nothing; empty uses FAILED_RETENTION."),
    )
    backoff_base = models.FloatField(
        _("first wait before a retry, in seconds"), null=True, blank=True, validators=[MinValueValidator(0)]
    )
    backoff_ceiling = models.FloatField(
        _("longest wait before a retry, in seconds"), null=True, blank=True, validators=[MinValueValidator(0)]
    )

    class Meta:
        db_table = "pgqueue_queue"
        required_db_vendor = "postgresql"
        verbose_name = _("queue")
        verbose_name_plural = _("queues")

    def __str__(self) -> str:
        return self.name
