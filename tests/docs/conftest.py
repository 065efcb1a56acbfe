"""The examples are files below `docs/examples/`, which the pages include: a project, an app, settings, SQL.

Here the app is installed for the time of a module.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import environ
import psycopg
import pytest
from asgiref.sync import sync_to_async
from django.apps import apps
from django.conf import settings
from django.db import connections
from django.test import override_settings
from pytest_django import DjangoDbBlocker

from .shop import DOCS, EXAMPLES


@pytest.fixture(scope="module")
def shop(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """The app `shop`, importable under that name, with its tables in both databases."""
    sys.path.insert(0, str(EXAMPLES))
    # Unblocked first: an app of Django asks the database for its types when it is made ready again.
    with django_db_blocker.unblock(), override_settings(INSTALLED_APPS=[*settings.INSTALLED_APPS, "shop"]):
        tables = list(apps.get_app_config("shop").get_models())
        for alias in ("default", "other"):
            with connections[alias].schema_editor() as editor:
                for table in tables:
                    editor.create_model(table)
        yield
        asyncio.run(sync_to_async(connections.close_all)())  # those of the thread that async code shares
        for alias in ("default", "other"):
            with connections[alias].schema_editor() as editor:
                for table in tables:
                    editor.delete_model(table)
            connections[alias].close()
    sys.path.remove(str(EXAMPLES))


@pytest.fixture(scope="module")
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
