"""What the migrations of the package do to a database."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

from django.db.migrations import SeparateDatabaseAndState
from django.db.migrations.operations.base import Operation

import django_pgqueue.migrations
from django_pgqueue.operations import SQL_FOLDER, RunSQLFile, read_sql

__all__ = ["definition", "on_tables_in_use", "operations", "sql_files"]


def sql_files() -> list[Path]:
    """Return the files that define tables, functions and triggers."""
    return sorted(SQL_FOLDER.rglob("*.sql"))


def definition(name: str) -> str:
    """Return the statement that creates a function."""
    pattern = rf"^CREATE (?:FUNCTION|PROCEDURE) {name}\(.*?^(?:END )?\$\$;$"
    found = [re.search(pattern, read_sql(path), re.DOTALL | re.MULTILINE) for path in sql_files()]
    (text,) = [each[0] for each in found if each is not None]
    return text


def operations() -> Iterator[Operation]:
    """Yield the operations of all migrations."""
    for module in pkgutil.iter_modules(django_pgqueue.migrations.__path__):
        migration = importlib.import_module(f"django_pgqueue.migrations.{module.name}").Migration
        for operation in migration.operations:
            if isinstance(operation, SeparateDatabaseAndState):
                yield from operation.database_operations
            else:
                yield operation


def on_tables_in_use() -> Iterator[RunSQLFile]:
    """Yield those that lock a table which may be in use, and that can be undone without a loss."""
    for operation in operations():
        if isinstance(operation, RunSQLFile) and operation.reverse.startswith(("DROP INDEX", "DROP TRIGGER")):
            yield operation
