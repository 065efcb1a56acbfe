"""Start ``runqueueworker`` in a separate process, and observe it from outside. Or run it in this one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import connection

from tests.support.commands import django_environment, forks, forks_here, start  # noqa: F401 - fixtures
from tests.support.poolers import Proxy, proxy


@pytest.fixture(autouse=True)
def _settings_of_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Worker processes of a command that runs in this process have them, too. They load sooner."""
    for name, value in django_environment().items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def door() -> Iterator[Proxy]:
    """A way to the server, which is closed."""
    parameters = connection.get_connection_params()
    with proxy(parameters["host"], int(parameters["port"])) as made:
        made.close_door()
        yield made
