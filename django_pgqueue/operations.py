"""Migration operations: one that installs the objects of a file in ``sql/``, and ``PayloadTriggers``.

Both may need a lock on a table that is in use. A migration that waits for it stands in line there, and
whoever uses the table then comes after it: one old transaction that is still open would stop all workers and
all code that enqueues, so the wait is short. Then the statements are rolled back to a savepoint, which gives
back the locks that they have taken, the others go on, and the statements are tried again.

Locks that earlier operations of the same migration have taken are kept meanwhile, so a migration locks only
one table that is in use.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from time import sleep
from typing import Any

from django.db import OperationalError, connections, migrations, transaction
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState

from .postgres import fetch_rows, sql_of

__all__ = ["SQL_FOLDER", "PayloadTriggers", "RunSQLFile"]

SQL_FOLDER = Path(__file__).parent / "sql"

# A function with SET search_path FROM CURRENT keeps the search path that is set when it is created, and finds
# its tables whatever the caller's path is, so the path is set to the one schema where the objects are
# created, and restored afterwards, because the rest of a migration may rely on it.
#
# The bodies are not checked then, so that a function may stand before functions that it calls.
_ENTER = (
    "SELECT set_config('pgqueue.search_path', current_setting('search_path'), true),"
    " set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true),"
    " set_config('pgqueue.check_function_bodies', current_setting('check_function_bodies'), true),"
    " set_config('check_function_bodies', 'off', true);"
)
_LEAVE = (
    "SELECT set_config('search_path', current_setting('pgqueue.search_path'), true),"
    " set_config('check_function_bodies', current_setting('pgqueue.check_function_bodies'), true);"
)
_CREATED = re.compile(
    r"^CREATE (?:UNIQUE |CONSTRAINT )?(TABLE|TYPE|FUNCTION|PROCEDURE|INDEX|TRIGGER) (\w+)"
    r"(?:\s+(?:AFTER|BEFORE)[^;]*?\sON\s+(\w+))?",
    re.MULTILINE,
)

#: Shorter than the workers wait for a lock (2 s), and than ``deadlock_timeout`` (1 s): if a worker has a lock
#: that the migration needs and waits for one that the migration has, the migration gives way.
_LOCK_TIMEOUT = "500ms"
_PAUSE = 1.0  # seconds in which the others go on
_TRIES = 40  # a minute, if each try waits as long as it may

_LOCK_NOT_AVAILABLE = "55P03"
# The rest of the migration may be that of another app, and keeps its own limit.
_SHORT_WAIT = (
    "SELECT set_config('pgqueue.lock_timeout', current_setting('lock_timeout'), true),"
    f" set_config('lock_timeout', '{_LOCK_TIMEOUT}', true);"
)
_OWN_WAIT = "SELECT set_config('lock_timeout', current_setting('pgqueue.lock_timeout'), true);"
_OLDEST = sql_of(__file__, "oldest_sessions")

#: ``/*unchanged*/`` stands for these columns, ``/*gone.unchanged*/`` for the columns of ``gone``. A job keeps
#: them when it moves to history and back. Migrations rely on this list: a later one needs a list of its own.
_UNCHANGED = (
    "id", "task_path", "args", "kwargs", "metadata", "queue_name", "priority", "enqueued_at",
    "max_attempts", "timeout", "on_lost", "limit_key", "group_key", "unique_key", "unique_scope",
    "tenant", "context", "batch", "parents", "searched",
)  # fmt: skip
_DESCRIBED = re.compile(r"^((?:--.*\n)+)CREATE (TABLE|TYPE|FUNCTION|PROCEDURE) (\w+)", re.MULTILINE)


def read_sql(path: Path) -> str:
    """Return the text of a file in ``sql/``. The lines above an object become its comment in the database."""

    def columns(found: re.Match[str]) -> str:
        return ", ".join(f"{found[1] or ''}{name}" for name in _UNCHANGED)

    text = re.sub(r"/\*(\w+\.)?unchanged\*/", columns, path.read_text(encoding="utf-8"))
    for lines, kind, name in _DESCRIBED.findall(text):
        words = re.sub("^-- ?", "", lines.strip(), flags=re.MULTILINE).replace("'", "''")
        internal = "Internal. " if name.startswith("_") else ""
        text += f"\nCOMMENT ON {kind} {name} IS '{internal}{words}';\n"
    return text


class RunSQLFile(migrations.RunSQL):
    """Create the objects in ``sql/<name>``, on PostgreSQL. ``reverse`` drops them (default: all of them)."""

    def __init__(self, name: str, reverse: str = "") -> None:
        self.name = name
        text = read_sql(SQL_FOLDER / name)
        self.reverse = reverse or "; ".join(
            f"DROP {kind} {created}{table and f' ON {table}'}"
            for kind, created, table in reversed(_CREATED.findall(text))
        )
        super().__init__([_ENTER, text, _LEAVE], self.reverse)

    def deconstruct(self) -> tuple[str, list[Any], dict[str, Any]]:
        """Return the constructor's arguments, for migrations."""
        return self.__class__.__qualname__, [self.name, self.reverse], {}

    def describe(self) -> str:
        """Return the text that ``migrate --plan`` shows."""
        return f"Install {self.name}"

    def _run_sql(self, schema_editor: BaseDatabaseSchemaEditor, sqls: Any) -> None:
        if schema_editor.connection.vendor != "postgresql":
            return
        # Each is run as one string with its comments: Django need not split it into statements.
        texts = [sqls] if isinstance(sqls, str) else sqls
        _with_lock_retry(schema_editor, self.describe(), [(sql, None) for sql in texts])


_LOST = sql_of(__file__, "lost_functions")


def lost_functions(alias: str) -> list[tuple[str, str]]:
    """Return the search paths of functions that are not the schema of the tables, and what corrects each."""
    return fetch_rows(alias, _LOST)


def after_migrate(*, using: str, **kwargs: Any) -> None:
    """Let the functions find their tables again if the schema was renamed."""
    if connections[using].vendor == "postgresql" and (lost := lost_functions(using)):
        with connections[using].cursor() as cursor:
            cursor.execute("; ".join(statement for _, statement in lost))


class PayloadTriggers(Operation):
    """Let each row of a model be a job of a task: ``PayloadTriggers("Receipt", "shop.tasks.send")``.

    The model inherits from ``JobPayload``, and the task is declared with ``@task(payload=Receipt)``. Its path
    is written down here, because a migration must not import code that may change later. If the path changes,
    use the operation again with the new one. In reverse, it restores the previous state.
    """

    def __init__(self, model_name: str, task: str) -> None:
        self.model_name = model_name
        self.task = task

    def deconstruct(self) -> tuple[str, list[Any], dict[str, Any]]:
        """Return the constructor's arguments, for migrations."""
        return self.__class__.__qualname__, [self.model_name, self.task], {}

    def describe(self) -> str:
        """Return the text that ``migrate --plan`` shows."""
        return f"Let each row of {self.model_name} be a job of {self.task}"

    @property
    def migration_name_fragment(self) -> str:
        """Return a part of the name of a migration."""
        return f"{self.model_name.lower()}_triggers"

    def references_model(self, name: str, app_label: str) -> bool:
        """Tell the optimizer that only this model matters."""
        return name.lower() == self.model_name.lower()

    def state_forwards(self, app_label: str, state: ProjectState) -> None:
        """Raise ``ValueError`` if the model is not a payload: the models themselves do not change."""
        model = state.models.get((app_label, self.model_name.lower()))
        if model is None or "job" not in model.fields:
            raise ValueError(
                f"PayloadTriggers({self.model_name!r}, ...) in the app {app_label!r}: "
                + ("there is no such model yet." if model is None else "the model is not a JobPayload.")
            )

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        """Create the triggers."""
        self._run(app_label, schema_editor, to_state, self.task)

    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        """Drop the triggers, or restore those for the earlier path."""
        self._run(app_label, schema_editor, from_state, None)

    def _run(self, app_label: str, schema_editor: Any, state: Any, task: str | None) -> None:
        query = "SELECT _pgqueue_attach_payload(%s::regclass, %s)"
        connection = schema_editor.connection
        model = state.apps.get_model(app_label, self.model_name)
        if connection.vendor == "postgresql" and self.allow_migrate_model(connection.alias, model):
            table = connection.ops.quote_name(model._meta.db_table)
            _with_lock_retry(schema_editor, self.describe(), [(query, [table, task])])


def _with_lock_retry(
    schema_editor: BaseDatabaseSchemaEditor, what: str, statements: Sequence[tuple[str, Any]]
) -> None:
    """Run statements with their parameters. Raise ``OperationalError`` if they do not get their locks."""
    collects = schema_editor.collect_sql
    for remaining in reversed(range(_TRIES)):
        try:
            with nullcontext() if collects else transaction.atomic(using=schema_editor.connection.alias):
                for sql, parameters in [(_SHORT_WAIT, None), *statements, (_OWN_WAIT, None)]:
                    schema_editor.execute(sql, parameters)
            return
        except OperationalError as error:
            if getattr(error.__cause__, "sqlstate", None) != _LOCK_NOT_AVAILABLE:
                raise
            if not remaining:
                raise OperationalError(_sentence(schema_editor, what)) from error
        sleep(_PAUSE)


def _sentence(schema_editor: BaseDatabaseSchemaEditor, what: str) -> str:
    with schema_editor.connection.cursor() as cursor:
        cursor.execute(_OLDEST)
        oldest = [f"process {pid} ({name}, {state}) for {age}" for pid, name, state, age in cursor.fetchall()]
    return (
        f"The migration needs a lock for “{what}”, and did not get it in {_TRIES} tries: a transaction that"
        " has used the table is still open. This migration has changed nothing. Run migrate again when that"
        " transaction has ended, or end it with pg_terminate_backend."
        f" Open are: {'; '.join(oldest) or 'none any more'}."
    )
