"""The aliases of DATABASES: what they name, which one changes a row, and what has changed since the setup.

A router may read from a replica (``db_for_read``) and write to its primary (``db_for_write``). A row
remembers the alias that it was read from, which may refuse every change, and may be behind, so whatever
changes a row, waits for it, or names it for others asks ``write_alias``. A router that returns the same alias
for every row does not know that a row comes from a database of its own, where another row has the same key.
Such a row is changed where it was read.

A new process reads the settings again. Django's test runner, pytest-django, and programs that serve several
tenants change ``connections.settings`` in memory only, for instance the name of the test database, on which a
process that they start must work, too.

    ready():  ``remember`` the content of DATABASES; Django's test databases change the same dicts later
    a start:  ``changed`` returns what is different now; it is passed on as JSON, never on a command line
    a child:  ``apply`` the changes, once Django is set up. The rest is in its own settings, maybe newer
"""

from __future__ import annotations

import json
import os
import re
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured, ObjectDoesNotExist
from django.db import connections, router
from django.db.utils import ConnectionHandler

from .. import conf

#: What an alias with several hosts asks for if it is to reach a standby.
_STANDBY = {"prefer-standby", "read-only", "standby"}
_SEARCH_PATH = re.compile(r"search_path\s*=\s*(\S+)")
#: This entry describes how to create a test database, not how to connect to one.
_NOT_SENT = "TEST"

_remembered: dict[str, dict[str, Any]] | None = None


def write_alias(row: Any) -> str:
    """Return the alias to change a row with: the one that the router names for it, as for ``row.save()``.
    Its model has ``BORN``, the column that distinguishes it from one with the same key in another database.

    Read the row there if the router names another database than the one that the row was read from: if it is
    not there, the database is no replica, and the alias is that of the row.
    """
    model, read = row._meta.concrete_model, row._state.db
    alias = primary_of(router.db_for_write(model, instance=row))
    if read is None or same_database(read, alias) or primary_of(read) == alias:
        return alias
    try:
        born = getattr(row, row.BORN)
    except ObjectDoesNotExist:  # only its key is known, and it is no longer kept
        return str(read)
    rows = model._base_manager.using(alias).filter(**{"pk": row.pk, row.BORN: born})
    return alias if rows.exists() else str(read)


def primary_of(alias: str) -> str:
    """Return the alias of the primary of a replica that ``PGQUEUE["REPLICAS"]`` names, or this alias."""
    replicas = conf.current().replicas
    return next((primary for primary, replica in replicas.items() if replica == alias), alias)


def same_database(one: str, other: str) -> bool:
    """Return whether two aliases name one database and one schema, perhaps with other roles or OPTIONS."""
    return one == other or _place(one) == _place(other)


def _place(alias: str) -> tuple[str, ...]:
    if alias not in connections.settings:
        return (alias,)
    values = parameters(alias)
    options = values.get("OPTIONS") or {}
    path = _SEARCH_PATH.search(str(options.get("options") or ""))
    names = [str(values.get(name) or "") for name in ("ENGINE", "HOST", "PORT", "NAME")]
    standby = str(options.get("target_session_attrs") in _STANDBY)
    return (*names, str(options.get("service") or ""), path[1] if path else "", standby)


def remember() -> None:
    """Note DATABASES as a new process would read it. Only the first call counts.

    ``ready`` is called again whenever a test overrides INSTALLED_APPS; the test database is in use by then.
    """
    global _remembered
    if _remembered is None:
        # Not connections.settings: reading it here would fix its values before the project can change them.
        _remembered = _copy(settings.DATABASES)


def changed() -> str:
    """Return the changes since ``remember`` as JSON, by alias; an empty string if there are none.

    Raise ``ImproperlyConfigured`` if a changed value cannot be written as JSON.
    """
    # As Django reads them, with its defaults for missing settings.
    read: dict[str, Any] = ConnectionHandler(_copy(_remembered or {})).settings
    found: dict[str, dict[str, Any]] = {}
    for alias in connections:
        before = read.get(alias, {})
        for name, value in parameters(alias).items():
            if name == _NOT_SENT or (name in before and before[name] == value):
                continue
            try:
                json.dumps(value, default=os.fspath)
            except (TypeError, ValueError) as error:
                # The message leaves out the value, which may contain a password.
                raise ImproperlyConfigured(
                    f"DATABASES[{alias!r}][{name!r}] was changed after Django's setup to a value that cannot "
                    f"be sent to worker processes: {error}. Use a value that JSON supports, or set it in the "
                    "settings module, which every worker process reads."
                ) from None
            found.setdefault(alias, {})[name] = value
    return json.dumps(found, default=os.fspath) if found else ""


def apply(text: str) -> None:
    """Use the changes that ``changed`` returned in another process, from the next connection on."""
    given = json.loads(text)
    for alias, different in given.items():
        # In place: DATABASES and existing connections share this dict.
        connections.settings.setdefault(alias, {_NOT_SENT: {}}).update(different)
    for connection in connections.all(initialized_only=True):
        if connection.alias in given:  # opened while Django was set up
            connection.close()
            if hasattr(connection, "close_pool"):  # PostgreSQL's pool would keep using the old parameters
                connection.close_pool()


def database_name(alias: str) -> str:
    """Return the NAME that connections of this alias use; empty if there is none (a service)."""
    return str(parameters(alias).get("NAME") or "")


def parameters(alias: str) -> dict[str, Any]:
    """Return the settings of an alias: of this thread's connection, if any, which may have its own."""
    for connection in connections.all(initialized_only=True):
        if connection.alias == alias:
            return connection.settings_dict
    current: dict[str, Any] = connections.settings[alias]
    return current


def _copy(value: Any) -> Any:
    """Copy the containers only: other objects in them may not be copyable."""
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_copy(item) for item in value]
    return value


def set_interval_style(connection: Any, **kwargs: Any) -> None:
    """After Django has connected, set the only IntervalStyle in which psycopg reads intervals, if a database
    or a role has another one. A server sends its settings to who connects, so this costs nothing otherwise.
    """
    if connection.vendor != "postgresql" or not router.allow_migrate(connection.alias, "django_pgqueue"):
        return
    info = getattr(connection.connection, "info", None)
    if info is not None and info.parameter_status("IntervalStyle") not in (None, "postgres"):
        with connection.cursor() as cursor:
            cursor.execute("SET IntervalStyle TO 'postgres'")
