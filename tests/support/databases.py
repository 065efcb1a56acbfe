"""Databases and aliases in addition to those in the settings: other schemas, other roles, other vendors."""

from __future__ import annotations

import copy
import importlib
import inspect
import pkgutil
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import psycopg
import pytest
from django.core.management import call_command
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations import SeparateDatabaseAndState
from django.db.migrations.operations.base import Operation
from django.test.utils import override_settings

import django_pgqueue.migrations
from django_pgqueue.operations import SQL_FOLDER, RunSQLFile, read_sql

from .everything_pooled import skip_what_is_set_for_a_session
from .sessions import open_raw
from .waiting import until


@contextmanager
def alias(name: str, *, opened: bool = True, **changes: Any) -> Iterator[str]:
    """Add an alias that is like ``default`` except for the `changes`."""
    if opened:
        skip_what_is_set_for_a_session(changes)
    connections.settings[name] = {**copy.deepcopy(connections["default"].settings_dict), **changes}
    try:
        if opened:  # opened now, because Django does not let tests open aliases that they have not declared
            connections[name].connect()
        yield name
    finally:
        connections[name].close()
        del connections[name]
        del connections.settings[name]


@contextmanager
def fresh_database(options: str = "") -> Iterator[str]:
    """Create an empty database on the server of the tests for the duration of the block. Yield its name.

    ``options``: more of the statement, such as the encoding.
    """
    name = f"{connections['default'].settings_dict['NAME']}_fresh"
    with open_raw() as owner:
        owner.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
        owner.execute(f'CREATE DATABASE "{name}" {options}')
        try:
            yield name
        finally:
            owner.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


@contextmanager
def roles(*names: str) -> Iterator[list[str]]:
    """Create roles without any rights. Their names contain the database's, so that test processes do not
    clash.
    """
    prefix = connections["default"].settings_dict["NAME"]
    full = [f"{prefix}_{name}" for name in names]
    with open_raw() as owner:
        for role in full:
            _drop_role(owner, role)
            owner.execute(f'CREATE ROLE "{role}"')
        try:
            yield full
        finally:
            for role in full:
                _drop_role(owner, role)


def in_schema(schema: str, role: str = "") -> dict[str, Any]:
    """Return the OPTIONS of an alias whose search path is `schema`, and which uses the role."""
    options = {"options": f"-c search_path={schema}"}
    return {**options, "assume_role": role} if role else options


def migrate(name: str, target: str | None = None) -> None:
    """Migrate only this app, on an alias."""
    arguments = ["django_pgqueue"] if target is None else ["django_pgqueue", target]
    call_command("migrate", *arguments, database=name, verbosity=0)


def _drop_role(owner: psycopg.Connection[Any], role: str) -> None:
    row = owner.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (role,)).fetchone()
    if row is not None:
        owner.execute(f'DROP OWNED BY "{role}"')
        owner.execute(f'DROP ROLE "{role}"')


@contextmanager
def database_settings(**changed: Any) -> Iterator[None]:
    """Settings of the default database, for connections of other threads (they share the dict)."""
    settings = connections.settings["default"]
    before = dict(settings)
    settings.update(changed)
    try:
        yield
    finally:
        settings.clear()
        settings.update(before)


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


# --- Shards that do not answer, beside those of the tests


def any_alias() -> AbstractContextManager[Any]:
    """Let a test case connect to aliases that it has not declared, also in threads."""
    connect = BaseDatabaseWrapper.ensure_connection
    connect = inspect.getclosurevars(connect).nonlocals.get("real_ensure_connection", connect)
    return patch.object(BaseDatabaseWrapper, "ensure_connection", connect)


@contextmanager
def sharded(*more: str, **settings: Any) -> Iterator[None]:
    """Let `default` and `other` be shards, and more: "down" refuses connections, and "silent" accepts them
    and never answers.
    """
    with socket.socket() as closed, socket.socket() as silent:
        closed.bind(("127.0.0.1", 0))
        silent.bind(("127.0.0.1", 0))
        silent.listen(64)
        ports = {"down": closed.getsockname()[1], "silent": silent.getsockname()[1]}
        for alias in more:
            address = {"HOST": "127.0.0.1", "PORT": ports[alias]}
            connections.settings[alias] = {**connections.settings["other"], **address}
        try:
            with any_alias(), override_settings(PGQUEUE={"SHARDS": ["default", "other", *more], **settings}):
                yield
        finally:
            silent.close()  # which lets go of the threads that wait for an answer
            # Not join(): it refuses a thread that is about to begin.
            until(lambda: not any("pgqueue-ask-" in each.name for each in threading.enumerate()), seconds=60)
            for alias in more:
                connections[alias].close()
                del connections[alias]
                del connections.settings[alias]


@pytest.fixture
def shards() -> Iterator[None]:
    with sharded():
        yield


@pytest.fixture
def one_is_down() -> Iterator[None]:
    """Of three shards."""
    with sharded("down"):
        yield
