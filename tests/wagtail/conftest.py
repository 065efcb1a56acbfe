"""Collect only the tests whose settings are in use, and give them a database that keeps its rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from django.conf import settings
from django.test.utils import setup_databases, teardown_databases

if TYPE_CHECKING:
    from pytest_django.plugin import DjangoDbBlocker

    from django_pgqueue.testing import RunningWorker


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out a folder whose settings are not in use, because its models could not be imported."""
    if not (collection_path / "settings.py").exists():
        return None
    return not settings.SETTINGS_MODULE.startswith(f"{__package__}.{collection_path.name}.") or None


@pytest.fixture(scope="session")
def kept_database(django_db_modify_db_settings: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """A database in which tests commit. The mark ``django_db`` would empty its tables after each test, and
    what the migrations have put into them would be lost.
    """
    with django_db_blocker.unblock():
        databases = setup_databases(verbosity=0, interactive=False, aliases={"default": None})
        yield
        teardown_databases(databases, verbosity=0)


@pytest.fixture(scope="module")
def worker(tenants: None) -> Iterator[RunningWorker]:
    """A worker for the tenants of a project."""
    from django_pgqueue.testing import running_worker

    with running_worker() as worker:
        yield worker
