"""What a scenario may have in place of the database of the tests. Each is a context manager for a folder: in
its block, Django's default database is the one of that world, for the load, the workers and the audit.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django.db import connections

from tests.support.databases import fresh_database
from tests.support.own_server import OwnServer, own_server
from tests.support.poolers import Pooler, between

from .previous import manage, previous_release

__all__ = [
    "at_database", "behind_a_pooler", "database_of_the_previous_release", "server_of_its_own",
    "the_tests_database",
]  # fmt: skip


@contextmanager
def the_tests_database(folder: Path) -> Iterator[None]:
    """Use the database of the tests as it is."""
    yield


@contextmanager
def server_of_its_own(folder: Path) -> Iterator[OwnServer]:
    """Run a server that faults may stop and start, with the tables of the apps."""
    with own_server(folder / "server") as server, at_database(**server.database):
        yield server


@contextmanager
def behind_a_pooler(folder: Path) -> Iterator[Pooler]:
    """Put a pooler between everybody and the database of the tests."""
    with between("default") as pooler:
        yield pooler


@contextmanager
def database_of_the_previous_release(folder: Path) -> Iterator[Path]:
    """Use a database that the previous release has migrated. Yield the folder with its code."""
    with fresh_database() as name, at_database(NAME=name):
        code = previous_release()
        manage("migrate", "--run-syncdb", "--verbosity", "0", folder=code)
        yield code


@contextmanager
def at_database(**database: Any) -> Iterator[None]:
    """Let Django's default database be this one. Connections of other threads must be closed before."""
    before = connections.settings["default"]
    _forget()
    connections.settings["default"] = {**before, **database}
    try:
        yield
    finally:
        _forget()
        connections.settings["default"] = before


def _forget() -> None:
    """Close the connection of this thread. The next use makes one with the current settings."""
    connections["default"].close()
    del connections["default"]
