"""What some of these programs need: a durable server, an empty queue, a worker, and queries."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def set_up(settings: str = "benchmarks.settings") -> None:
    """Find or start the server, create the tables, and print the versions."""
    if not os.environ.get("DATABASE_URL"):
        from .server import server_url

        os.environ["DATABASE_URL"] = server_url()
    os.environ["DJANGO_SETTINGS_MODULE"] = settings
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", verbosity=0)
    server = {name: one(f"SHOW {name}") for name in ("server_version", "synchronous_commit", "fsync")}
    print(f"Python {sys.version.split()[0]}, Django {django.__version__}, {os.cpu_count()} cores, {server}")


def run_worker(*options: str, is_silent: bool = False, database: str = "") -> subprocess.Popen[bytes]:
    """Start a worker command, for the database that DATABASE_URL names, or for another one.

    If it is silent, its warnings are not shown either.
    """
    return subprocess.Popen(
        [sys.executable, "-m", "django", "runqueueworker", "--verbosity", "0", *options],
        cwd=ROOT,
        env={**os.environ, **({"DATABASE_URL": database} if database else {})},
        stderr=subprocess.DEVNULL if is_silent else None,
    )


def empty() -> None:
    """Delete all jobs, and the rows of workers that are gone."""
    execute("TRUNCATE pgqueue_job, pgqueue_stat, pgqueue_worker")


def wait_for(question: str) -> None:
    """Repeat a query until its result is true. Exit the program after a minute."""
    deadline = time.monotonic() + 60
    while not one(question):
        if time.monotonic() > deadline:
            raise SystemExit(f"This is still not true after a minute: {question}")
        time.sleep(0.05)


def execute(statement: str) -> None:
    """Run a statement."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(statement)


def rows(query: str) -> list[tuple[Any, ...]]:
    """Return all rows of a query."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(query)
        return list(cursor.fetchall())


def one(query: str) -> Any:
    """Return the first value of the first row of a query."""
    return rows(query)[0][0]
