"""Run the statements of a migration without holding up the queue while they wait for a lock.

A migration that waits for the lock of a table stands in line there, and whoever uses the table then comes
after it. So one old transaction that is still open would stop all workers and all code that enqueues. Here
the wait is short. Then the statements are rolled back to a savepoint, which gives back the locks that they
have taken, the others go on, and the statements are tried again.

Locks that earlier operations of the same migration have taken are kept meanwhile. So a migration locks only
one table that is in use.
"""

from __future__ import annotations

from time import sleep
from typing import TYPE_CHECKING, Any

from django.db import OperationalError, transaction

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django.db.backends.base.schema import BaseDatabaseSchemaEditor

#: Shorter than the workers wait for a lock (2 s), and than ``deadlock_timeout`` (1 s): if a worker has a lock
#: that the migration needs and waits for one that the migration has, the migration gives way.
LOCK_TIMEOUT = "500ms"
PAUSE = 1.0
"""Seconds in which the others go on."""
TRIES = 40
"""A minute, if each try waits as long as it may."""

_LOCK_NOT_AVAILABLE = "55P03"
# The rest of the migration may be that of another app, and keeps its own limit.
_ENTER = (
    "SELECT set_config('pgqueue.lock_timeout', current_setting('lock_timeout'), true),"
    f" set_config('lock_timeout', '{LOCK_TIMEOUT}', true);"
)
_LEAVE = "SELECT set_config('lock_timeout', current_setting('pgqueue.lock_timeout'), true);"
_OLDEST = """
    SELECT pid, coalesce(nullif(application_name, ''), usename), state,
        date_trunc('second', clock_timestamp() - xact_start)
    FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND xact_start IS NOT NULL
    ORDER BY xact_start LIMIT 3
"""


def patiently(
    schema_editor: BaseDatabaseSchemaEditor, what: str, statements: Sequence[tuple[str, Any]]
) -> None:
    """Run statements with their parameters. Raise ``OperationalError`` if they do not get their locks."""
    if schema_editor.collect_sql:
        _run(schema_editor, statements)
        return
    alias = schema_editor.connection.alias
    for remaining in reversed(range(TRIES)):
        try:
            with transaction.atomic(using=alias):
                _run(schema_editor, statements)
            return
        except OperationalError as error:
            if getattr(error.__cause__, "sqlstate", None) != _LOCK_NOT_AVAILABLE:
                raise
            if not remaining:
                raise OperationalError(_sentence(schema_editor, what)) from error
        sleep(PAUSE)


def _run(schema_editor: BaseDatabaseSchemaEditor, statements: Sequence[tuple[str, Any]]) -> None:
    for sql, parameters in [(_ENTER, None), *statements, (_LEAVE, None)]:
        schema_editor.execute(sql, parameters)


def _sentence(schema_editor: BaseDatabaseSchemaEditor, what: str) -> str:
    with schema_editor.connection.cursor() as cursor:
        cursor.execute(_OLDEST)
        oldest = [f"process {pid} ({name}, {state}) for {age}" for pid, name, state, age in cursor.fetchall()]
    return (
        f"The migration needs a lock for “{what}”, and did not get it in {TRIES} tries: a transaction that"
        " has used the table is still open. This migration has changed nothing. Run migrate again when that"
        " transaction has ended, or end it with pg_terminate_backend."
        f" Open are: {'; '.join(oldest) or 'none any more'}."
    )
