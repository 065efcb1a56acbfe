"""Fixtures for every test of the worker. They reset the gates, so that no job of another test waits there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.app import worker_tasks


@pytest.fixture(autouse=True)
def _clean_gates() -> Iterator[None]:
    worker_tasks.reset()
    yield
    worker_tasks.reset()
