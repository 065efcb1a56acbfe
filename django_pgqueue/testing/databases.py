"""Which database a function of the test kit works on, and whether that is one of a test."""

from __future__ import annotations

from django.core.exceptions import ImproperlyConfigured
from django.db import connections

from ..postgres.aliases import database_name
from ..tasks.routing import default_backend, is_test


def alias_of(using: str | None) -> str:
    """Return the alias to work on: the given one, or that of tasks that name no database."""
    return default_backend().home() if using is None else using


def check_is_test(what: str, alias: str) -> None:
    """Raise ``ImproperlyConfigured`` unless this is a test, and the database is a test database.

    Test runners name a test database as TEST["NAME"] says, or put "test_" before the name. Those that run in
    parallel add a suffix.
    """
    name = database_name(alias)
    wanted = (connections[alias].settings_dict.get("TEST") or {}).get("NAME")
    is_named = name.startswith("test_") or (wanted and name.startswith(str(wanted)))
    if not is_test() or not is_named:
        why = f"the database {name!r} is not a test database" if is_test() else "no test runs here"
        raise ImproperlyConfigured(
            f"{what} is for tests only, and {why}. It would change jobs that are not those of a test."
        )
