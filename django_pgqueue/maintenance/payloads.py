"""Write the tasks that code declares into ``pgqueue_task``, for calls from SQL and rows of payloads.

This happens after ``migrate``, so that SQL can enqueue at once, and when ``runqueueworker`` starts, because
settings and options change without a migration. As with schedules, a process does this once, one after the
other, and never again while it runs: what the last one that started declares is what counts, so two versions
of the code that run at the same time do not undo each other's rows again and again. Usually nothing has
changed, which one query shows, and nothing is locked.

No row is deleted: an older version of the code does not know the newest tasks, and a newer one may not know
tasks that older code still enqueues.
"""

from __future__ import annotations

import json
import logging
from contextlib import suppress
from typing import Any

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.db import OperationalError, connections, transaction

from .. import conf
from ..exceptions import UnknownTask, WrongBackend
from ..formatting import counted, get_logger
from ..models import JobPayload
from ..postgres import fetch_rows, fetch_value, sql_of
from ..postgres.aliases import same_database
from ..schedules.policy import stored_policy
from ..tasks.keys import limit_name, searched_places
from ..tasks.paths import discover
from ..tasks.payload import key_fields, tasks_of_models
from ..tasks.task import Task, declared_tasks, find_task
from ..tasks.unique import unique_key, unique_options
from .schedules import database_of

logger = get_logger(__name__)

_EXISTS_SQL = "SELECT to_regproc('_pgqueue_declare_tasks') IS NOT NULL"
_STORED_SQL = sql_of(__file__, "stored")
_DECLARE_SQL = "SELECT _pgqueue_declare_tasks(%s::jsonb)"


def payload_models() -> list[type[JobPayload]]:
    """Return the models that inherit from ``JobPayload`` and have a table of their own."""
    return [
        model for model in apps.get_models()
        if issubclass(model, JobPayload) and not model._meta.proxy and model._meta.pk.name == "job"
    ]  # fmt: skip


def synchronize_tasks(alias: str, level: int = logging.INFO) -> None:
    """Write the policies of the tasks whose jobs go to ``alias``, and log a change at ``level``.

    If someone holds a lock on the table for ten seconds, this is logged, and nothing has changed.
    """
    if conf.problems() or connections[alias].vendor != "postgresql":
        return
    declared, changed, without_triggers = undeclared(alias)
    for task in without_triggers:
        logger.warning(  # as E021 does, because few people run the checks of the database
            "a row that is inserted into the table of %s is not a job of %s, because its triggers are "
            "missing. A migration must add them: python manage.py check --database %s",
            task.payload._meta.label if task.payload is not None else "", task.module_path, alias,
        )  # fmt: skip
    if not changed:
        return
    try:
        with transaction.atomic(using=alias):
            written = fetch_value(alias, _DECLARE_SQL, json.dumps(declared))
    except OperationalError as error:
        logger.error(
            "the tasks were not written to pgqueue_task: %s. Restart this worker.", str(error).strip()
        )
    else:
        logger.log(level, "stored the tasks that the code declares: %s changed", counted(written, "row"))


def undeclared(alias: str) -> tuple[list[dict[str, Any]], dict[str, list[str]], list[Task[..., Any]]]:
    """Compare the tasks whose jobs go to ``alias`` with their rows, in one query.

    Return the rows of all tasks; by the path of a task, the columns that differ, with ``task_path`` if it has
    no row; and the tasks whose table of payloads exists, but makes no jobs of them.
    """
    tasks = _tasks(alias)
    quote = connections[alias].ops.quote_name
    paid = [task for task in tasks if task.payload is not None]
    names = [quote(task.payload._meta.db_table) for task in paid if task.payload]
    rows, tables = map(json.loads, fetch_rows(alias, _STORED_SQL, [names])[0])
    table_of = {task.module_path: table for task, table in zip(paid, tables, strict=True)}
    declared = [_row(task, *table_of.get(task.module_path, [])[:1]) for task in tasks]
    stored = {row["task_path"]: row for row in rows}
    changed = {}
    for row in declared:
        known = stored.get(row["task_path"], {})
        if columns := [name for name, value in row.items() if known.get(name) != value]:
            changed[row["task_path"]] = columns
    without_triggers = [
        task for task in paid
        if table_of[task.module_path][0] is not None and task.module_path not in table_of[task.module_path][1]
    ]  # fmt: skip
    return declared, changed, without_triggers


def after_migrate(*, using: str, **kwargs: Any) -> None:
    """Synchronize after ``migrate``, and after a flush."""
    if connections[using].vendor == "postgresql" and is_installed(using):
        synchronize_tasks(using, logging.DEBUG)  # it is expected after a migration


def is_installed(alias: str) -> bool:
    """Return whether there is its function: a migration may be missing, or the app may have no tables."""
    return bool(fetch_value(alias, _EXISTS_SQL))


def _tasks(alias: str) -> list[Task[..., Any]]:
    """Return the tasks whose jobs go to ``alias``, as workers find them at their paths, in their order."""
    discover()
    found = {}
    for path in {task.module_path for task in declared_tasks()}:
        with suppress(UnknownTask):  # such as one that a function has made: it cannot be enqueued
            found[path] = find_task(path)
    for model in payload_models():
        if (task := tasks_of_models.get(model)) is not None:
            found[task.module_path] = task
    tasks = []
    for _, task in sorted(found.items()):
        with suppress(WrongBackend, ImproperlyConfigured):  # a check reports a backend that is not ours
            if same_database(database_of(task), alias):
                tasks.append(task)
    return tasks


def _row(task: Task[..., Any], relation: int | None = None) -> dict[str, Any]:
    """Return the columns of a task, as an enqueue would fill in the columns of a job."""
    rule, model, unique = task.concurrency or task.rate_limit, task.payload, task.unique
    limit = None if rule is None or rule.key == () else rule.key
    keys = {name: key for name, key in (("limit_key", limit), ("group_key", task.group)) if key is not None}
    columns = (
        {} if model is None else {name: key_fields(model)[str(key)].column for name, key in keys.items()}
    )
    computed, of_unique = [*keys], None
    if unique is not None:
        of_unique = unique_options(unique)
        if unique.key == ():
            of_unique["unique_key"] = unique_key(task, (), {})
        else:
            computed.append("unique_key")
    return {
        **stored_policy(task),
        "limit_name": None if rule is None else limit_name(task),
        "unique_options": of_unique,
        "computed_keys": computed,
        "search": searched_places(task),
        "model": None if model is None else model._meta.label,
        "relation": relation,
        "limit_column": columns.get("limit_key"),
        "group_column": columns.get("group_key"),
        "keeps": model is not None and bool(model.keep_rows),
    }
