"""The app config: its label and name in the admin, its checks, and what migrations and loads entail."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig
from django.db import connections
from django.db.backends.signals import connection_created
from django.db.models.signals import post_migrate, pre_migrate, pre_save

from .postgres import sql_of


class PgQueueConfig(AppConfig):
    """``INSTALLED_APPS = [..., "django_pgqueue"]``."""

    name = "django_pgqueue"
    verbose_name = "Job queue"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register the checks, and what a ``migrate``, a load and a connection entail."""
        from . import operations
        from .checks import backends, database, payloads, tasks  # noqa: F401
        from .maintenance.payloads import after_migrate
        from .postgres import aliases, roles

        aliases.remember()
        connection_created.connect(aliases.set_interval_style)
        pre_migrate.connect(roles.before_migrate, sender=self)
        post_migrate.connect(operations.after_migrate, sender=self)
        post_migrate.connect(roles.after_migrate, sender=self)
        for model in filter(_id_fields, self.get_models()):
            pre_save.connect(keep_sequence_ahead, sender=model)
        post_migrate.connect(after_migrate, sender=self)
        backends.silence_django()


# Loaded rows (``loaddata``, ``serialized_rollback``) have their ids. The sequence must be ahead of them.
# Jobs, batches and places in a wait queue share one sequence. A row may also name a job that is no longer
# kept, and a new job must not get its id. ``loaddata`` itself sets the sequence of a column to the greatest
# value in it, which may be less; so no column with values of the sequence owns it (``tables/job.sql``).

_OWN_IDS = frozenset(("Job", "JobBatch"))
_NAMED_IDS = frozenset(
    ("batch_id", "child_id", "job_id", "live_jobs", "parent_id", "parent_ids", "sample_job",
     "started_jobs", "wait_position")
)  # fmt: skip
_RAISE_SQL = sql_of(__file__, "raise_ids")


def _id_fields(model: Any) -> list[str]:
    """Return the fields of a model that contain ids of the sequence."""
    names = {*_NAMED_IDS, "id"} if model.__name__ in _OWN_IDS else _NAMED_IDS
    return [field.attname for field in model._meta.concrete_fields if field.attname in names]


def keep_sequence_ahead(sender: Any, instance: Any, raw: bool, using: str, **_: Any) -> None:
    """Before a loaded row is stored, set the sequence to the greatest id in it, if that is greater."""
    if not raw or connections[using].vendor != "postgresql":
        return
    found: list[int] = []
    for name in _id_fields(sender):
        value = getattr(instance, name)
        found += value if isinstance(value, list) else [value] if isinstance(value, int) else []
    if found:
        with connections[using].cursor() as cursor:
            cursor.execute(_RAISE_SQL, {"id": max(found)})
