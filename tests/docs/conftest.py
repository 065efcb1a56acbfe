"""The examples are files below `docs/examples/`, which the pages include: a project, an app, settings, SQL.

Here the app is installed for the time of a module.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from importlib import import_module

import pytest
from asgiref.sync import sync_to_async
from django.apps import apps
from django.conf import settings
from django.db import connections
from django.test import override_settings
from pytest_django import DjangoDbBlocker

from .shop import EXAMPLES, skip_without


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


@pytest.fixture
def own_celery(monkeypatch: pytest.MonkeyPatch) -> None:
    """An app gets no shared tasks of other tests, some of which have the same name on purpose."""
    skip_without("celery")
    import_module("celery.app.builtins")  # registers its own shared tasks
    monkeypatch.setattr("celery._state._on_app_finalizers", set())
