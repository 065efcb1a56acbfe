"""The database: the one that DATABASE_URL names, or one on a PostgreSQL server of the checkout's own."""

from __future__ import annotations

import time
from functools import cache

import environ
from django.db import DatabaseError, connection

from example_project.embedded import ensure_server, stop_server
from example_project.project.places import EMBEDDED_SERVER

BEGAN = time.time()  # this process started the embedded server if the server started after this time


def given_url() -> str:
    """Return DATABASE_URL from the environment, or an empty string."""
    url: str = environ.Env().str("DATABASE_URL", default="")
    return url


@cache
def database_url() -> str:
    """Return the URL of the database. Start the embedded server if it is needed and not running."""
    return given_url() or ensure_server(EMBEDDED_SERVER)


def stop_own_server() -> None:
    """Stop the embedded server, unless it was running before this process or somebody else uses it."""
    if given_url():
        return
    try:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT pg_postmaster_start_time() >= to_timestamp(%s) AND NOT EXISTS ("
                "  SELECT FROM pg_stat_activity"
                "  WHERE backend_type = 'client backend' AND pid <> pg_backend_pid())",
                [BEGAN],
            )
            (is_own,) = cursor.fetchone()
    except DatabaseError:
        return  # it has already stopped
    finally:
        connection.close()
    if is_own:
        stop_server(EMBEDDED_SERVER)
