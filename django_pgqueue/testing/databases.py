"""The database of a test: which one it is, whether it is one of a test, and time that passes in it.

``travel`` lets time pass by moving the stored times into the past. No clock is changed.
Everything that the database compares with its clock moves by the same amount, so that the rows look as if
they had been written so much earlier. What waits for a time comes due, and what ends at a time has ended.

The guard refuses an UPDATE of a finished job (``triggers.sql``), because history does not
change, so these rows are deleted and inserted again, on the same shelf.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, cast

from django.core.exceptions import ImproperlyConfigured
from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from ..maintenance.schedules import synchronize
from ..models import Job
from ..postgres import sql_of
from ..postgres.aliases import database_name
from ..tasks.routing import default_backend, is_test

_JOBS_SQL = sql_of(__file__, "travel_jobs")
_REST_SQL = sql_of(__file__, "travel_rest")


def alias_of(using: str | None) -> str:
    """Return the alias to work on: the given one, or that of tasks that name no database."""
    return default_backend().home() if using is None else using


def check_is_test(what: str, alias: str) -> None:
    """Raise ``ImproperlyConfigured`` unless this is a test, and the database is a test database.

    Test runners name a test database as TEST["NAME"] says, or put "test_" before the name. Tests that run in
    parallel add a suffix.
    """
    name = database_name(alias)
    wanted = (connections[alias].settings_dict.get("TEST") or {}).get("NAME")
    is_named = name.startswith("test_") or (wanted and name.startswith(str(wanted)))
    if not is_test() or not is_named:
        why = f"the database {name!r} is not a test database" if is_test() else "no test runs here"
        raise ImproperlyConfigured(
            f"{what} is for tests only, and {why}. It would change jobs that do not belong to a test."
        )


def travel(by: timedelta | None = None, /, *, using: str | None = None, **parts: float) -> timedelta:
    """Let time pass: ``travel(hours=2)``, or ``travel(timedelta(hours=2))``. Return the time as a timedelta.

    The keywords are as in ``timedelta``. All stored times of the jobs, batches, workers, schedules, unique
    keys, rates, pauses and of the history move into the past by that time, so retries, delays, timeouts,
    expiries, leases, windows and retentions come due. Statistics, and the times in ``Job.errors``, do not
    move. Nothing runs by itself. Call ``run_jobs()`` or ``run_maintenance()``.

    ``using``: the alias of the database. Raise ``ImproperlyConfigured`` outside of tests, and ``ValueError``
    for a time that does not lie ahead.
    """
    alias = alias_of(using)
    check_is_test("travel()", alias)
    if by is not None and (parts or not isinstance(by, timedelta)):
        raise TypeError("travel() takes a timedelta, or its keywords: travel(hours=2).")
    distance = timedelta(**parts) if by is None else by
    if distance <= timedelta(0):
        raise ValueError(f"travel() goes ahead in time, so it takes a time of more than 0, not {distance}.")
    synchronize(alias)  # what the code declares was there before
    statements = (_jobs_sql(connections[alias]) + _REST_SQL).split(";\n")
    with transaction.atomic(using=alias), connections[alias].cursor() as cursor:
        for statement in filter(str.strip, statements):
            cursor.execute(statement, {"by": cast("Any", distance)})
    return distance


def _jobs_sql(connection: BaseDatabaseWrapper) -> str:
    """Return the statements for jobs. They name all columns of the table, whichever there are."""
    quote = connection.ops.quote_name
    fields = [field for field in Job._meta.concrete_fields if not field.generated]
    times = [str(field.column) for field in fields if field.get_internal_type() == "DateTimeField"]
    moved = {name: f"{quote(name)} - %(by)s::interval" for name in times}
    names = [str(field.column) for field in fields]
    text = _JOBS_SQL.replace("{set}", ", ".join(f"{quote(name)} = {moved[name]}" for name in times))
    text = text.replace("{columns}", ", ".join(quote(name) for name in names))
    return text.replace("{values}", ", ".join(moved.get(name, quote(name)) for name in names))
