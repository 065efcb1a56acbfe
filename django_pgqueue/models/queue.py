"""``Queue``: the settings of a queue. A queue without a row uses the defaults."""

from __future__ import annotations

from django.core.validators import MinValueValidator, RegexValidator
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy


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
    retention = models.DurationField(
        _("keep done and cancelled jobs for"),
        null=True,
        blank=True,
        help_text=_("“90 00:00:00” means 90 days. Zero keeps nothing; empty uses RETENTION."),
    )
    failed_retention = models.DurationField(
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


# ----------------------------------------------------------------------------
# ``Pause``: a queue, a task or everything that is paused. Without a row, work goes on.


class Kind(models.TextChoices):
    """What is paused."""

    QUEUE = "queue", _("queue")
    TASK = "task", _("task")
    ALL = "all", _("everything")


class Pause(models.Model):
    """One pause. ``pause()`` and ``resume()`` write it, because the workers are told about it."""

    Kind = Kind

    id = models.BigAutoField(primary_key=True)
    kind = models.CharField(pgettext_lazy("pause", "what"), max_length=8, choices=Kind.choices)
    name = models.CharField(
        _("name"),
        max_length=255,
        blank=True,
        db_default="",
        help_text=_(
            "The name of a queue, or the path of a task, such as shop.tasks.sync. Empty for everything."
        ),
    )
    reason = models.CharField(_("reason"), max_length=400, blank=True, db_default="")
    author = models.CharField(_("paused by"), max_length=150, blank=True, db_default="")
    paused_at = models.DateTimeField(_("paused at"), db_default=Now())
    until = models.DateTimeField(_("until"), null=True, blank=True)

    class Meta:
        db_table = "pgqueue_pause"
        required_db_vendor = "postgresql"
        verbose_name = _("pause")
        verbose_name_plural = _("pauses")
        constraints = (
            models.UniqueConstraint(fields=["kind", "name"], name="pgqueue_pause_target"),
            models.CheckConstraint(
                condition=Q(kind__in=["queue", "task"]) & ~Q(name="") | Q(kind="all", name=""),
                name="pgqueue_pause_kind",
            ),
        )

    def __str__(self) -> str:
        return f"{self.get_kind_display()} {self.name}".strip()
