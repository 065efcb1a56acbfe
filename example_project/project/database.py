"""The database: the one that DATABASE_URL names, else on a PostgreSQL server of the checkout's own."""

from __future__ import annotations

import time
from functools import cache

import environ
from django.db import DatabaseError, connection

from example_project.embedded import ensure_server, stop_server
from example_project.project.places import EMBEDDED_SERVER

BEGAN = time.time()  # an embedded server that is younger was started by this process


def given_url() -> str:
    """DATABASE_URL of the environment, or nothing."""
    url: str = environ.Env().str("DATABASE_URL", default="")
    return url


@cache
def database_url() -> str:
    """The address of the database; the embedded server is started, if it is needed and does not run."""
    return given_url() or ensure_server(EMBEDDED_SERVER)


def stop_own_server() -> None:
    """Stop the embedded server, unless it ran before this process, or somebody else uses it."""
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
        return  # it is stopped already
    finally:
        connection.close()
    if is_own:
        stop_server(EMBEDDED_SERVER)
