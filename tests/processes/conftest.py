"""Start ``runqueueworker`` in a separate process, and observe it from outside. Or run it in this one."""

from __future__ import annotations

import pytest

from tests.support.commands import django_environment, forks, start  # noqa: F401 - fixtures


@pytest.fixture(autouse=True)
def _settings_of_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Worker processes of a command that runs in this process have them, too. They load sooner."""
    for name, value in django_environment().items():
        monkeypatch.setenv(name, value)
