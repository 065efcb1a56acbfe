"""Mark the tests of this folder. ``tox run -e chaos`` runs them, and ``dev.py test`` leaves them out.

They start hundreds of processes, and take half as much processor time as all other tests together.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.commands import forks, start  # noqa: F401 - fixtures

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what was collected in this folder."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker("chaos")
