"""Mark the tests of this folder. ``tox run -e chaos`` runs them, and ``dev.py test`` leaves them out.

They start hundreds of processes, and take half as much processor time as all other tests together.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from django.test import TransactionTestCase

from tests.support.commands import forks, start  # noqa: F401 - fixtures

HERE = Path(__file__).parent


@pytest.fixture(scope="session", autouse=True)
def interpreters() -> Iterator[None]:
    """Let commands start their worker processes as in production (``tests/support/fork_server.py``).

    And end the session of each test: scenarios replace the alias ``default``, and its sessions would be lost.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TEST_INTERPRETERS", "1")
        patch.setattr(TransactionTestCase, "_should_reload_connections", lambda self: True)
        yield


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what was collected in this folder."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker("chaos")
