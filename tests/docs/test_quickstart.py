"""The quickstart, as commands, on a database of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import environ
import psycopg
import pytest

from .shop import (
    DOCS,
    EXAMPLES,
)


@pytest.fixture
def quickstart(django_db_setup: None) -> Iterator[dict[str, str]]:
    """A new database on the server of the tests, as an environment for the quickstart's project."""
    server: Any = environ.Env.db_url_config(os.environ["DATABASE_URL"])
    name = f"quickstart_{uuid4().hex[:12]}"
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
        yield {
            **{key: value for key, value in os.environ.items() if not key.startswith("DJANGO_")},
            "PGDATABASE": name, "PGHOST": server["HOST"], "PGPORT": str(server["PORT"] or 5432),
            "PGUSER": server["USER"], "PGPASSWORD": server["PASSWORD"] or "",
            "PYTHONPATH": str(DOCS.parent),
        }  # fmt: skip
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def manage(environment: dict[str, str], *command: str) -> str:
    done = subprocess.run(
        [sys.executable, "manage.py", *command],
        cwd=EXAMPLES, env=environment, check=False, text=True, timeout=120,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_the_quickstart(quickstart: dict[str, str]) -> None:
    page = (DOCS / "tutorial" / "quickstart.md").read_text()
    assert "shop.tests" not in page
    manage(quickstart, "migrate", "--run-syncdb", "--verbosity", "0")
    said = manage(quickstart, "shell", "--command", (EXAMPLES / "first_order.py").read_text())
    assert "pending" in said
    manage(quickstart, "runqueueworker", "--burst")
    said = manage(quickstart, "shell", "--command", (EXAMPLES / "look.py").read_text())
    assert "done ann@example.com 1" in said
    for command in re.findall(r"^python manage\.py (\S+)", page, re.MULTILINE):
        assert command in {"migrate", "makemigrations", "shell", "runqueueworker", "check"}
