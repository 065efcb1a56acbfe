"""``JobPayload``: the base of models whose rows are calls of a task. ``DeclaredTask``: the policy of a task.

The triggers of ``PayloadTriggers`` (``operations``) make a job of each new row. A row and its job have the
same key, so that each finds the other with a join.
"""

from __future__ import annotations

from typing import Any, ClassVar

from django.db import models
from django.db.models.expressions import DatabaseDefault
from django.utils.translation import gettext_lazy as _

from .fields import InternalMeta
from .job import Job


class JobPayload(models.Model):
    """The abstract base of a model with a row for each job of one task: ``@task(payload=Receipt)``.

    A new row is a new job, whoever inserts it. From ``Job``, the row is ``job.<app label>_<model>``.
    """

    keep_rows: ClassVar[bool] = False
    """Whether rows stay when their jobs are no longer kept. False: maintenance deletes them then."""
    is_job_payload: ClassVar[bool] = True

    job = models.OneToOneField(
        Job,
        models.DO_NOTHING,
        primary_key=True,
        db_constraint=False,  # the job moves between the leaves of its table; the triggers take this place
        db_default=models.Func(
            models.Value("pgqueue_job_id_seq"), function="nextval", output_field=models.BigIntegerField()
        ),
        related_name="%(app_label)s_%(class)s",
        editable=False,
        verbose_name=_("job"),
    )

    class Meta:
        abstract = True

    def _is_pk_set(self, meta: Any = None) -> bool:
        """As in Django 6.1: a key that the database will fill in is not set. Before, ``bulk_create()`` took
        it for set, and did not return the keys.
        """
        return not isinstance(self._get_pk_val(meta), DatabaseDefault | None)


class DeclaredTask(models.Model):
    """A task of the code, with the policy that calls from SQL and rows of payloads give its jobs."""

    task_path = models.CharField(_("task"), max_length=255, primary_key=True)
    queue_name = models.CharField(_("queue"), max_length=100)
    priority = models.SmallIntegerField(_("priority"))
    max_attempts = models.IntegerField(_("maximum attempts"), null=True)
    timeout = models.IntegerField(_("timeout in seconds"), null=True)
    on_lost = models.CharField(_("if the worker is lost"), max_length=8, null=True)
    expires_after = models.FloatField(_("expires after seconds"), null=True)
    metadata = models.JSONField(_("metadata"), default=dict)
    limit_name = models.CharField(_("name of the limit"), max_length=200, null=True)
    unique_options = models.JSONField(_("unique"), null=True)
    computed_keys = models.JSONField(_("computed keys"), default=list)
    model = models.CharField(_("model"), max_length=255, null=True)
    relation: Any = models.CharField(_("table"), max_length=255, null=True)
    limit_column = models.CharField(_("column of the limit key"), max_length=63, null=True)
    group_column = models.CharField(_("column of the group"), max_length=63, null=True)
    keeps = models.BooleanField(_("keeps its rows"), db_default=False)
    swept_to = models.BigIntegerField(_("swept to"), db_default=0)

    class Meta(InternalMeta):
        db_table = "pgqueue_task"
        managed = False  # so that a flush does not empty it
        verbose_name = _("declared task")
        verbose_name_plural = _("declared tasks")

    def __str__(self) -> str:
        return self.task_path
