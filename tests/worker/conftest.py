"""Fixtures for every test of the worker. They reset the gates, so that no job of another test waits there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from django_pgqueue.maintenance.payloads import synchronize_tasks
from django_pgqueue.models import DeclaredTask
from tests.app import worker_tasks
from tests.support.commands import forks_here  # noqa: F401 - a fixture


@pytest.fixture(autouse=True)
def _clean_gates() -> Iterator[None]:
    worker_tasks.reset()
    yield
    worker_tasks.reset()


@pytest.fixture
def undeclared(transactional_db: None) -> Iterator[None]:
    """``pgqueue_task`` is empty, so a worker fills in the policies of jobs from SQL. No flush restores it."""
    DeclaredTask.objects.all().delete()
    yield
    synchronize_tasks("default")
