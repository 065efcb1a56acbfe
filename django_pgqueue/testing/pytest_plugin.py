"""The pytest plugin: fixtures, and readable assertions of the test kit. pytest loads it by its entry point.

Importing it imports no Django, so that it disturbs no project that does not use it. It works together with
pytest-django, which owns the database of a test.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .workers import RunningWorker

__all__: list[str] = []

pytest.register_assert_rewrite("django_pgqueue.testing.assertions")


@pytest.fixture(autouse=True)
def _pgqueue_forget_jobs() -> Iterator[None]:
    """Forget the jobs of dummy mode after each test, if there can be any."""
    yield
    modes = sys.modules.get("django_pgqueue.testing.modes")
    if modes is not None:
        modes.clear_jobs()


@pytest.fixture
def run_jobs() -> Callable[..., Any]:
    """``django_pgqueue.testing.run_jobs``: run the jobs that are due in this test."""
    from . import running

    return running.run_jobs


@pytest.fixture
def immediate_jobs() -> Iterator[None]:
    """Run each job in the process that enqueues it, at the commit, or at once without a transaction."""
    from . import modes

    with modes.immediate_jobs():
        yield


@pytest.fixture
def dummy_jobs() -> Iterator[list[Any]]:
    """Keep jobs in memory, in this list, and run none. This needs no database."""
    from . import modes

    with modes.dummy_jobs():
        yield modes.JOBS


@pytest.fixture
def pgqueue_worker(transactional_db: None) -> Iterator[RunningWorker]:
    """Run a real worker on the test database while the test runs. Its log is shown if the test fails."""
    from . import workers

    with workers.running_worker() as worker:
        yield worker
        worker.stop()
        print(worker.log)  # noqa: T201 - pytest shows it if the test has failed
