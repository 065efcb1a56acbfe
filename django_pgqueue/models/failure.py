"""``FailureGroup``: failures with the same fingerprint, so with the same error at the same place in the code.

A report of failed attempts adds a ``FailureNote``. Every few seconds, maintenance adds the notes to the
groups and to ``FailureCount``, which has the numbers by time, task, queue and version.
"""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

from .fields import ArrayColumn


class FailureGroup(models.Model):
    """Failures with the same fingerprint, with the newest one as a sample."""

    fingerprint = models.CharField(_("fingerprint"), max_length=40, primary_key=True)
    error_class = models.CharField(_("error class"), max_length=255)
    message = models.CharField(_("message"), max_length=500)
    traceback = models.TextField(_("traceback"))
    sample_job = models.BigIntegerField(_("newest job"))
    failed = models.BigIntegerField(pgettext_lazy("number of jobs", "failed"), db_default=0)
    retried = models.BigIntegerField(pgettext_lazy("number of jobs", "retried"), db_default=0)
    first_seen = models.DateTimeField(_("first seen"))
    last_seen = models.DateTimeField(_("last seen"))
    tasks = ArrayColumn("text", verbose_name=_("tasks"), default=list)
    versions = ArrayColumn("text", verbose_name=_("versions"), default=list)
    is_news = models.BooleanField(_("new or changed"), db_default=True, editable=False)
    """Whether no alert has told that it is new, or that a change has ended that it was muted."""
    told = models.BigIntegerField(_("failed at the last alert"), db_default=0, editable=False)
    muted_at = models.DateTimeField(_("muted at"), null=True, blank=True)
    muted_by = models.CharField(_("muted by"), max_length=150, db_default="", blank=True)

    class Meta:
        db_table = "pgqueue_failure_group"
        required_db_vendor = "postgresql"
        # It is shown to those who may view jobs.
        default_permissions = ()
        permissions = (("mute_failuregroup", "Can mute group of failures"),)
        verbose_name = _("group of failures")
        verbose_name_plural = _("groups of failures")

    def __str__(self) -> str:
        return f"{self.error_class}: {self.message}" if self.message else self.error_class


class FailureCount(models.Model):
    """How many attempts of a group failed in a quarter of an hour, an hour, or a day."""

    id = models.BigAutoField(primary_key=True)
    span = models.CharField(_("span"), max_length=8)
    start = models.DateTimeField(_("start"))
    fingerprint = models.CharField(_("fingerprint"), max_length=40)
    task_path = models.CharField(_("task"), max_length=255)
    queue_name = models.CharField(_("queue"), max_length=100)
    version = models.CharField(_("version"), max_length=50)
    failed = models.BigIntegerField(pgettext_lazy("number of jobs", "failed"), default=0)
    retried = models.BigIntegerField(pgettext_lazy("number of jobs", "retried"), default=0)

    class Meta:
        db_table = "pgqueue_failure_count"
        required_db_vendor = "postgresql"
        default_permissions = ()
        verbose_name = _("count of failures")
        verbose_name_plural = _("counts of failures")
        constraints = (
            models.UniqueConstraint(
                fields=["span", "start", "fingerprint", "task_path", "queue_name", "version"],
                name="pgqueue_failure_count_key",
            ),
        )
        indexes = (models.Index(fields=["fingerprint", "span", "start"], name="pgqueue_failure_count_group"),)

    def __str__(self) -> str:
        return f"{self.fingerprint} {self.span} {self.start:%Y-%m-%d %H:%M}"


class FailureNote(models.Model):
    """Failed attempts of one report that are in no group yet."""

    id = models.BigAutoField(primary_key=True)
    at = models.DateTimeField(_("time"), db_default=Now())
    fingerprint = models.CharField(_("fingerprint"), max_length=40)
    task_path = models.CharField(_("task"), max_length=255)
    queue_name = models.CharField(_("queue"), max_length=100)
    version = models.CharField(_("version"), max_length=50)
    failed = models.IntegerField(pgettext_lazy("number of jobs", "failed"))
    retried = models.IntegerField(pgettext_lazy("number of jobs", "retried"))
    job_id = models.BigIntegerField(_("job"))
    error_class = models.CharField(_("error class"), max_length=255)
    message = models.CharField(_("message"), max_length=500)
    traceback = models.TextField(_("traceback"))

    class Meta:
        db_table = "pgqueue_failure_note"
        required_db_vendor = "postgresql"
        default_permissions = ()
        verbose_name = _("note of failures")
        verbose_name_plural = _("notes of failures")

    def __str__(self) -> str:
        return f"{self.fingerprint} {self.at:%Y-%m-%d %H:%M:%S}"
