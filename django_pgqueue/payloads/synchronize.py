"""Write the tasks that code declares for payload models into the database, where the triggers read them.

This happens after ``migrate``, so that rows can be inserted at once, and when a worker starts, because
settings and options change without a migration. The last one counts. A project without payload models does
nothing.
"""

from __future__ import annotations

import json
import logging
from typing import Any

from django.apps import apps
from django.db import connections

from .. import conf
from ..encoding import encode_metadata
from ..exceptions import WrongBackend
from ..formatting import counted, get_logger
from ..models import JobPayload
from ..postgres.aliases import same_database
from ..schedules.synchronize import database_of, import_task_modules
from ..tasks.keys import limit_name
from ..tasks.task import Task
from .declare import column_of, task_of_model

__all__ = ["after_migrate", "payload_models", "synchronize_payloads"]

logger = get_logger(__name__)

_RELATION_SQL = "SELECT to_regclass('pgqueue_payload')::oid, to_regclass(%s)::oid"
_PATHS_SQL = "SELECT pgqueue_payload_paths_v1(%s::oid)"
_DECLARE_SQL = "SELECT pgqueue_declare_payloads_v1(%s::jsonb)"


def payload_models() -> list[type[JobPayload]]:
    """Return the models that inherit from ``JobPayload`` and have a table of their own."""
    return [
        model for model in apps.get_models()
        if issubclass(model, JobPayload) and not model._meta.proxy and model._meta.pk.name == "job"
    ]  # fmt: skip


def synchronize_payloads(alias: str, level: int = logging.INFO) -> None:
    """Write the policies of the tasks whose jobs go to ``alias``, and log a change at ``level``."""
    if conf.problems() or connections[alias].vendor != "postgresql" or not (models := payload_models()):
        return
    import_task_modules()
    tasks = [task for model in models if (task := task_of_model(model)) is not None and _is_in(task, alias)]
    with connections[alias].cursor() as cursor:
        declared = []
        for task in tasks:
            cursor.execute(_RELATION_SQL, [connections[alias].ops.quote_name(task.payload._meta.db_table)])
            ours, relation = cursor.fetchone()
            if ours is not None and relation is not None:  # otherwise a migration is missing
                cursor.execute(_PATHS_SQL, [relation])
                if task.module_path not in cursor.fetchone()[0]:
                    _warn(task, alias)
                declared.append({**_policy(task), "relation": relation})
        if declared:
            cursor.execute(_DECLARE_SQL, [json.dumps(declared)])
            (changed,) = cursor.fetchone()
            if changed:
                message = "the code declares other tasks with payloads: %s changed"
                logger.log(level, message, counted(changed, "row"))


def after_migrate(*, using: str, **kwargs: Any) -> None:
    """Synchronize after ``migrate``, and after a flush."""
    synchronize_payloads(using, logging.DEBUG)  # it is expected after a migration


def _is_in(task: Task[..., Any], alias: str) -> bool:
    """Return whether the jobs of a task are in a database. A check tells of a backend that is not ours."""
    try:
        return same_database(database_of(task), alias)
    except WrongBackend:
        return False


def _warn(task: Task[..., Any], alias: str) -> None:
    """Tell what E021 tells, because few people run the checks of the database."""
    logger.warning(
        "a row that is inserted into the table of %s is not a job of %s, because its triggers are missing. "
        "A migration must add them: python manage.py check --database %s",
        task.payload._meta.label if task.payload is not None else "",
        task.module_path,
        alias,
    )


def _policy(task: Task[..., Any]) -> dict[str, Any]:
    """Return the columns of a task, as an enqueue would fill in those of a job."""
    settings, model = conf.current(), task.payload
    assert model is not None
    rule = task.concurrency or task.rate_limit
    expires_after = task.expires_after
    return {
        "task_path": task.module_path,
        "model": model._meta.label,
        "queue_name": task.queue_name,
        "priority": task.priority,
        "max_attempts": task.max_attempts or settings.max_attempts,
        "timeout": task.timeout or settings.timeout,
        "on_lost": task.on_lost,
        "expires_after": None if expires_after is None else expires_after.total_seconds(),
        "metadata": json.loads(encode_metadata(task.metadata)),
        "limit_name": None if rule is None else limit_name(task),
        "limit_column": None if rule is None or rule.key is None else column_of(model, str(rule.key)),
        "group_column": None if task.group is None else column_of(model, str(task.group)),
        "keeps": bool(model.keep_rows),
    }
