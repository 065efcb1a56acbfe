"""``Worker``: the processes that run jobs. Heartbeats update this narrow table and no jobs.

A worker in another language, registered by ``pgqueue_register_worker``, has no supervisor. Its ``pid`` is 0
if it has not given it.
"""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

from .fields import ArrayColumn


class Worker(models.Model):
    """One worker process. It is registered before its first claim and removed when it stops."""

    BORN: ClassVar[str] = "started_at"

    id = models.BigIntegerField(_("id"), primary_key=True)
    host = models.CharField(_("host"), max_length=255)
    pid = models.IntegerField(_("process"))
    supervisor = models.BigIntegerField(_("supervisor"), null=True, blank=True)
    queues = ArrayColumn("text", verbose_name=_("queues"), default=list)
    exclude_queues = ArrayColumn("text", verbose_name=_("all queues but"), default=list, db_default=[])
    slots = models.IntegerField(_("slots"))
    lost = models.IntegerField(_("slots taken by lost jobs"), default=0, db_default=0)
    """Those of jobs that were given back, and whose tasks have not ended here."""
    version = models.CharField(_("version"), max_length=50)
    state = models.CharField(
        _("state"),
        max_length=10,
        choices=[("running", pgettext_lazy("worker", "running")), ("draining", _("draining"))],
        db_default="running",
    )
    last_group = models.CharField(
        _("group of its last job"), max_length=200, blank=True, db_default="", editable=False
    )
    """Written by claims by SQL, which take the groups in turn."""
    drain = models.CharField(
        _("asked to end"),
        max_length=8,
        choices=[("replace", _("to be replaced")), ("stop", _("with all its processes"))],
        db_default="",
        blank=True,
    )
    holds_lock = models.BooleanField(
        _("holds its lock"),
        db_default=True,
        help_text=_("Its process holds a session lock while it lives, except behind a pooler."),
    )
    started_jobs = ArrayColumn(
        "bigint", verbose_name=_("jobs that had started at the last heartbeat"), null=True
    )
    memory = models.BigIntegerField(_("memory in bytes"), null=True, blank=True)
    """The resident memory of its process, which it writes every ten seconds; None if that is not known."""
    started_at = models.DateTimeField(_("started at"), db_default=Now())
    heartbeat_at = models.DateTimeField(_("last heartbeat"), db_default=Now())

    class Meta:
        db_table = "pgqueue_worker"
        required_db_vendor = "postgresql"
        default_permissions = ("view",)
        permissions = (("drain_worker", "Can stop or replace worker"),)
        verbose_name = _("worker")
        verbose_name_plural = _("workers")

    def __str__(self) -> str:
        return f"{self.host}:{self.pid}" if self.pid else self.host
