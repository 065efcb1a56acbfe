"""What is about PostgreSQL and connections to it, and knows nothing of jobs.

session     a connection of the worker's own, with its prepared statements
liveness    dead connections, and answers that do not come
clock       the clock of the database
timeout     a time limit for statements
roles       two roles with few rights
aliases     what DATABASES name, and what has changed there
arrays      values as the arrays of a statement
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.db import connections


def fetch_value(alias: str, statement: str, *parameters: Any) -> Any:
    """Run a statement on Django's connection, and return its only value."""
    return fetch_rows(alias, statement, parameters)[0][0]


def fetch_rows(alias: str, statement: str, parameters: Any = None) -> list[Any]:
    """Run a statement on Django's connection, and return its rows."""
    with connections[alias].cursor() as cursor:
        cursor.execute(statement, parameters)
        return list(cursor.fetchall())


def sql_of(module: str, *names: str) -> str:
    """Return the text of files beside a module, without ``.sql``: ``sql_of(__file__, "states_live")``."""
    return "".join(Path(module).with_name(f"{name}.sql").read_text(encoding="utf-8") for name in names)
