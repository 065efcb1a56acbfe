"""Write the schedules that code and settings declare into the database, once, when a worker starts.

    declared, no row:         added
    declared, another row:    changed, except for the fields that the admin overrides
    a row, not declared:      retired, if this process can see that it is gone
    declared, a retired row:  comes back

Several workers may start at the same time, with old and with new code. They do this one after the other, and
none of them does it again while it runs: what the last one that started declares is what counts. Usually
nothing has changed, and nothing is locked.
"""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module
from typing import Any

from django.apps import apps
from django.db import OperationalError, transaction
from django.db.models.functions import Now

from .. import conf
from ..exceptions import UnknownTask, WrongBackend
from ..formatting import get_logger
from ..models import Schedule
from ..models.schedule import definition_of, differences
from ..postgres import fetch_value
from ..postgres.aliases import same_database
from ..schedules.declare import Declaration, declared_schedules, schedules_in_settings, settings_module
from ..schedules.policy import known_policy
from ..tasks.paths import discover, is_visible
from ..tasks.routing import default_backend, is_ours, resolve
from ..tasks.task import Task, find_task

logger = get_logger(__name__)

PATIENCE = "10s"  # how long to wait for a lock
_PATIENCE_SQL = "SELECT set_config('lock_timeout', %s, true)"
_LOCK_SQL = "SELECT name FROM pgqueue_duty WHERE name = 'schedules' FOR UPDATE"


def synchronize(alias: str) -> None:
    """Make the rows in the database ``alias`` what code and settings declare for it.

    If someone holds a lock on a row for ten seconds, this is logged, and nothing has changed.
    """
    discover()
    known = Schedule.objects.using(alias)
    for name in known.filter(source="code").values_list("declared_by", flat=True).distinct():
        if apps.get_containing_app_config(name) is not None:
            with suppress(Exception, SystemExit):  # whatever the module raises: it is not visible then
                import_module(name)
    declared = _declared_for(alias)
    if not _changes(list(known), declared):
        return
    try:
        with transaction.atomic(using=alias):
            fetch_value(alias, _PATIENCE_SQL, PATIENCE)
            fetch_value(alias, _LOCK_SQL)
            _write(alias, _changes(list(known.select_for_update(no_key=True)), declared))
    except OperationalError as error:
        logger.error("the schedules were not synchronized: %s. Restart this worker.", str(error).strip())


def database_of(task: Task[..., Any]) -> str:
    """Return the alias of the database of the jobs of a task. Raise WrongBackend if they are not ours."""
    backend = resolve(task.backend)
    if not is_ours(backend):
        raise WrongBackend(
            f"{task.module_path} uses the backend {task.backend!r}, which is not one of django_pgqueue, so "
            "it cannot be scheduled."
        )
    return task.database or backend.home()


def _declared_for(alias: str) -> dict[str, Declaration]:
    """Return the schedules whose jobs go to this database. An unknown task has no database of its own."""
    in_settings, wrong = schedules_in_settings()
    for name, problem in wrong.items():
        logger.error("the schedule %r in PGQUEUE is left as it is: %s", name, problem)
    found = {}
    for name, declaration in {**in_settings, **declared_schedules()}.items():
        try:
            database = database_of(find_task(declaration.task_path))
        except (UnknownTask, WrongBackend) as error:
            logger.error("schedule %r: %s", name, error)
            if isinstance(error, WrongBackend):
                continue
            database = default_backend().home()
        if same_database(database, alias):
            found[name] = declaration
    return found


def _changes(rows: list[Schedule], declared: dict[str, Declaration]) -> dict[str, dict[str, Any]]:
    """Return the columns to write, by the name of the schedule; the columns of a new one are complete."""
    present = {row.name: row for row in rows}
    changes = {name: _update(present.get(name), each) for name, each in declared.items()}
    for name in present.keys() - declared.keys():
        row = present[name]
        if row.source == "settings":
            is_gone = row.declared_by == settings_module() and name not in conf.current().schedules
        else:
            is_gone = row.source == "code" and is_visible(row.declared_by)
        policy = known_policy(row.task_path, row.args, row.kwargs)
        if is_gone and row.retired_at is None:
            changes[name] = {"retired_at": Now()}
        elif policy not in (None, row.policy):
            changes[name] = {"policy": policy}
    return {name: values for name, values in changes.items() if values}


def _update(row: Schedule | None, declaration: Declaration) -> dict[str, Any]:
    """Return the columns that differ. The values of a schedule that the admin has made become overrides."""
    new: dict[str, Any] = {name: getattr(declaration, name) for name in Schedule.DECLARED}
    new |= {name: getattr(declaration, name) for name in ("source", "declared_by")}
    new["declared"] = definition_of(declaration)
    if row is not None:
        is_new = row.declared is None
        new["overridden"] = differences(definition_of(row), new["declared"]) if is_new else row.overridden
        new |= {name: getattr(row, name) for name in new["overridden"]}
    new["policy"] = known_policy(new["task_path"], new["args"], new["kwargs"])
    if row is None:
        return new
    new["policy"] = new["policy"] or row.policy
    values = {name: value for name, value in new.items() if getattr(row, name) != value}
    if row.retired_at is not None:
        values["retired_at"] = None
    if "declared_by" in values and row.declared_by and not is_visible(row.declared_by):
        logger.warning(
            "schedule %r is now declared by %s, no longer by %s. If another project declares it, too, give "
            "it another name.", row.name, declaration.declared_by, row.declared_by,
        )  # fmt: skip
    return values


def _write(alias: str, changes: dict[str, dict[str, Any]]) -> None:
    for name, values in sorted(changes.items()):
        # Only what differs: the trigger sees an edit of the timing in the columns that are set.
        rows = Schedule.objects.using(alias)
        if rows.filter(name=name).update(**values, updated_at=Now()):
            what = "retired" if values.get("retired_at") else "changed"
            logger.info("schedule %r: %s (%s)", name, what, ", ".join(sorted(values)))
        else:
            rows.bulk_create([Schedule(name=name, **values)], ignore_conflicts=True)
            logger.info("schedule %r: added", name)
