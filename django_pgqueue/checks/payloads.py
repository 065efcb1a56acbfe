"""System checks for the models of a project: models that inherit from ``JobPayload`` (tasks, databases,
triggers and references), and models that refer to rows of the queue.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any

from django.apps import apps
from django.core.checks import CheckMessage, Tags
from django.db import DEFAULT_DB_ALIAS, NotSupportedError, OperationalError, connections, models, router
from django.db.models import DO_NOTHING

from ..exceptions import WrongBackend
from ..formatting import first_few
from ..maintenance.payloads import is_installed, payload_models, undeclared
from ..maintenance.schedules import database_of
from ..models import DeclaredTask, Job, JobPayload, Queue, Schedule
from ..postgres import fetch_rows, fetch_value, sql_of
from ..postgres.aliases import same_database
from ..tasks.paths import discover
from ..tasks.payload import tasks_of_models
from .backends import check, message, settings_are_broken
from .database import checkable, unapplied

# Before the first migration, the function is missing, and no condition would save a statement that calls it.
_COLUMNS_SQL = "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0"
_EXISTS_SQL = sql_of(__file__, "payload_exists")
_PATHS_SQL = "SELECT _pgqueue_payload_paths(to_regclass(%s))"


@check()
def check_payloads(app_configs: Any, **kwargs: Any) -> Iterator[CheckMessage]:
    """E019 and E020: payload models with another key, and those in another database than their jobs. W007 and
    W008: payload models without a task, and rows that maintenance cannot delete.
    """
    for model in apps.get_models():
        is_payload = issubclass(model, JobPayload) and not model._meta.proxy
        # The rows of a child belong to the rows of its parent, which has the job.
        is_child = any(issubclass(parent, JobPayload) for parent in model._meta.get_parent_list())
        if is_payload and not is_child and model._meta.pk.name != "job":
            yield message(
                "E019",
                f"The primary key of {model._meta.label} is {model._meta.pk.name!r}, but the key of a "
                "payload is the id of its job.",
                "Do not override the field 'job' of JobPayload, and do not make another field the key.",
            )
    if settings_are_broken() or not payload_models():
        return
    discover()
    for payload in payload_models():
        yield from (*_homes(payload), *_references(payload))


@check(Tags.database)
def check_payload_triggers(
    app_configs: Any, databases: Sequence[str] | None = None, **kwargs: Any
) -> Iterator[CheckMessage]:
    """E021: the table of a payload model has no triggers, or the triggers of another task. E029: it lacks
    the column of a key. W011: its task is not declared in the database.
    """
    if not databases or settings_are_broken():
        return
    discover()
    for model in payload_models():
        task = tasks_of_models.get(model)
        alias = router.db_for_write(model)
        if task is not None and alias in databases and connections[alias].vendor == "postgresql":
            yield from _triggers(alias, model, task)


@check(Tags.database)
def check_declared_tasks(
    app_configs: Any, databases: Sequence[str] | None = None, **kwargs: Any
) -> Iterator[CheckMessage]:
    """W010: ``pgqueue_task`` differs from the code."""
    if settings_are_broken() or sys.argv[1:2] in (["migrate"], ["runqueueworker"]):  # they mend it
        return
    for alias in checkable(databases):
        try:
            if unapplied(alias, Job._meta.app_label) or not is_installed(alias):
                continue  # W003, E009
            _, changed, _ = undeclared(alias)
        except (OperationalError, NotSupportedError):
            continue  # E012, E011
        if not changed:
            continue
        differing = [
            f"{path} ({'is missing' if 'task_path' in columns else ', '.join(columns)})"
            for path, columns in changed.items()
        ]
        yield message(
            "W010",
            f"The table pgqueue_task in the database {alias!r} differs from the code, so jobs that SQL "
            f"enqueues get another policy: {first_few(differing)}.",
            f"Run: python manage.py migrate --database {alias}. Or restart the workers: the one that "
            "starts last writes what its code declares. If this warning comes back, other code or other "
            "settings use the same database.",
        )


@check()
def check_references(app_configs: Any, **kwargs: Any) -> Iterator[CheckMessage]:
    """E025: a foreign key to Job with a constraint. W012: a reference whose rule is not applied, because the
    queue deletes the row.
    """
    for field, target in _relations():
        # Only the project deletes queues and schedules.
        if target._meta.app_label != Job._meta.app_label or target in (Queue, Schedule):
            continue
        where, kind = f"{field.model._meta.label}.{field.name}", type(field).__name__
        wanted = "db_constraint=False" if field.many_to_many else "on_delete=DO_NOTHING, db_constraint=False"
        hint = f"Write {kind}({target.__name__}, {wanted}{', null=True' if field.many_to_one else ''})."
        if field.remote_field.parent_link:
            hint = f"Do not inherit from {target.__name__}: refer to it. A row that is a job is a JobPayload."
        number = "W012"
        if target is Job and _has_constraint(field):
            number = "E025"
            problem = (
                "references jobs with a constraint, which the database would refuse: jobs are in a "
                "partitioned table, and move between its partitions."
            )
        elif _has_constraint(field) and not _deletes_in_database(field):
            problem = (
                f"references rows of {target.__name__} with a constraint. The queue deletes them with plain "
                "SQL when they are no longer needed, and the database would refuse that."
            )
        elif field.many_to_many or _deletes_in_database(field) or field.remote_field.on_delete is DO_NOTHING:
            continue
        else:
            problem = (
                f"has a rule for deleted rows of {target.__name__} that is never applied: the queue deletes "
                "them with plain SQL."
            )
        yield message(number, f"{where} {problem}", hint)


def _relations() -> Iterator[tuple[Any, type[models.Model]]]:
    """Yield the fields of the project that refer to other rows, hidden or not, and their models."""
    for model in apps.get_models():
        if model._meta.app_label == Job._meta.app_label or not model._meta.managed or model._meta.proxy:
            continue
        fields: list[Any] = [*model._meta.local_fields, *model._meta.local_many_to_many]
        for field in fields:
            target: Any = field.remote_field and field.remote_field.model
            if field.many_to_many and not field.remote_field.through._meta.auto_created:
                continue  # the keys of that model are looked at
            if target is not None and not isinstance(target, str):
                yield field, target._meta.concrete_model


def _homes(model: type[JobPayload]) -> Iterator[CheckMessage]:
    task = tasks_of_models.get(model)
    if task is None:
        yield message(
            "W007",
            f"{model._meta.label} inherits from JobPayload, but no task takes it: its rows are no calls.",
            f"Declare one with @task(payload={model.__name__}) in a module that TASK_MODULES names.",
        )
        return
    try:
        home = database_of(task)
    except WrongBackend:
        yield message(
            "E020",
            f"{task.module_path} takes a payload, but its backend {task.backend!r} is not one of "
            "django_pgqueue.",
            "Leave out backend=, or name a backend of this package.",
        )
        return
    where = router.db_for_write(model)
    if not same_database(where, home):
        yield message(
            "E020",
            f"The rows of {model._meta.label} go to the database {where!r}, but the jobs of "
            f"{task.module_path} to {home!r}. A row is its job, so both must be in one database.",
            "Let the database router return the same alias for both, or declare the task with "
            f"@task(payload={model.__name__}, database={where!r}).",
        )
    elif not router.allow_migrate_model(home, model):
        yield message(
            "E020",
            f"The database routers keep the table of {model._meta.label} out of the database {home!r}, where "
            f"the jobs of {task.module_path} are. A row is its job, so both must be in one database.",
            "Let allow_migrate() permit it. With django-tenants, put the app into SHARED_APPS.",
        )


def _references(model: type[JobPayload]) -> Iterator[CheckMessage]:
    """Find foreign keys to the rows, which the database would not let maintenance delete."""
    if model.keep_rows:
        return
    for field, target in _relations():
        if target is model and _has_constraint(field) and not _deletes_in_database(field):
            yield message(
                "W008",
                f"{field.model._meta.label}.{field.name} references rows of {model._meta.label}. Maintenance "
                "deletes them with plain SQL when their jobs are no longer kept, and the database would "
                "refuse that.",
                f"Set keep_rows = True in {model.__name__} and delete its rows yourself, use "
                "db_constraint=False, or let the database delete (DB_CASCADE of Django 6.1).",
            )


def _has_constraint(field: Any) -> bool:
    return bool((field.remote_field if field.many_to_many else field).db_constraint)


def _deletes_in_database(field: Any) -> bool:
    """Return whether the database applies the rule, as Django 6.1 has added."""
    rules = [getattr(models, name, None) for name in ("DB_CASCADE", "DB_SET_NULL", "DB_SET_DEFAULT")]
    return not field.many_to_many and field.remote_field.on_delete in rules


def _triggers(alias: str, model: type[JobPayload], task: Any) -> Iterator[CheckMessage]:
    table = connections[alias].ops.quote_name(model._meta.db_table)
    try:
        if not fetch_value(alias, _EXISTS_SQL, table):
            return
        paths = fetch_value(alias, _PATHS_SQL, table)
        is_declared = DeclaredTask.objects.using(alias).filter(pk__in=paths).exists()
    except OperationalError:
        return  # E012 reports that the database cannot be reached
    database = "" if alias == DEFAULT_DB_ALIAS else f" --database {alias}"
    if paths and not is_declared:
        yield message(
            "W011",
            f"The database {alias!r} does not know the task {paths[0]} of {model._meta.label}, so no row can "
            "be inserted. The table pgqueue_task has lost its rows, as after a restore without its data.",
            f"Run: python manage.py migrate{database}. A worker that starts declares tasks, too.",
        )
    if unapplied(alias, model._meta.app_label):
        return  # an error would stop the command migrate, and a migration may mend it
    yield from _key_columns(alias, model, paths, database)
    if paths[:1] == [task.module_path]:
        return
    whose = f"belong to {paths[0]}" if paths else "are missing, or disabled"
    yield message(
        "E021",
        f"The triggers of {model._meta.label} in the database {alias!r} {whose}, so a row that is inserted "
        f"is not a job of {task.module_path}.",
        f"Add to a migration of {model._meta.app_label!r}: PayloadTriggers({model.__name__!r}, "
        f"{task.module_path!r}) from django_pgqueue.operations, and run: python manage.py migrate{database}",
    )


def _key_columns(
    alias: str, model: type[JobPayload], paths: list[str], database: str
) -> Iterator[CheckMessage]:
    """Compare the columns that the trigger reads with the columns of the table."""
    table = connections[alias].ops.quote_name(model._meta.db_table)
    columns = {name for (name,) in fetch_rows(alias, _COLUMNS_SQL, [table])}
    for declared in DeclaredTask.objects.using(alias).filter(pk__in=paths[:1]):
        missing = {declared.limit_column, declared.group_column} - {None, *columns}
        for column in sorted(filter(None, missing)):
            yield message(
                "E029",
                f"The table of {model._meta.label} in the database {alias!r} has no column {column!r}, which "
                f"is the key or the group of {declared.task_path}, so no row can be inserted.",
                f"If it was renamed, run: python manage.py migrate{database}. A worker that starts "
                "declares it, too.",
            )
