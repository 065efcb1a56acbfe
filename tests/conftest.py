"""Start one PostgreSQL server for the run, unless DATABASE_URL names a server.

The server is started before pytest-xdist starts its workers. They inherit its address, and each of them has
databases of its own, copies of one that the first of them migrates. The server has fsync off. Its files are
in `var/test-<process id>` and are removed at the end. If a run is killed, the next run removes them.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import psycopg
import psycopg.sql
import pytest
from django.conf import settings
from django.core.management import call_command
from django.db import connections
from django.test import TransactionTestCase
from pytest_django import DjangoDbBlocker

from example_project.embedded import ensure_server, remove_server
from tests.settings import databases
from tests.support.databases import alias, one_is_down, shards  # noqa: F401 - for all tests
from tests.support.everything_pooled import leftovers_found, skip_what_needs_a_session
from tests.support.loggers import LoggersKept
from tests.support.servers import FOLDER, kept_cluster, remove_cluster
from tests.support.sessions import connect, one, session, sessions, settled_server  # noqa: F401
from tests.support.wording import wording  # noqa: F401

ROOT = Path(__file__).resolve().parent.parent
SERVER = pytest.StashKey[Path]()
#: Other commands run the tests of these folders, whose names are those of their markers.
APART = ("browser", "chaos", "wagtail")

hypothesis.settings.register_profile("fuzz", max_examples=20_000, deadline=None)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of ``python3 dev.py test --pooler`` and ``.ci/run long``."""
    parser.addoption("--pooler", action="store_true", help="run pgbouncer between everything and the server")
    parser.addoption("--long", action="store_true", help="run the tests that are marked as long, too")


@pytest.fixture(scope="session")
def django_db_modify_db_settings(
    django_db_modify_db_settings_parallel_suffix: None, django_db_blocker: DjangoDbBlocker
) -> None:
    """Let the workers of pytest-xdist copy a database that one of them has migrated, because that takes long.

    Only on the server of the run, and with the settings of these tests: nobody else finds the copy.
    """
    if {"PYTEST_XDIST_WORKER", FOLDER} - {*os.environ} or settings.SETTINGS_MODULE != "tests.settings":
        return
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as server:
        server.execute("SELECT pg_advisory_lock(1)")
        if not server.execute("SELECT 1 FROM pg_database WHERE datname = 'migrated'").fetchone():
            server.execute("DROP DATABASE IF EXISTS migrating")  # of one that failed
            server.execute("CREATE DATABASE migrating")
            with django_db_blocker.unblock(), alias("migrating", NAME="migrating"):
                call_command("migrate", database="migrating", run_syncdb=True, verbosity=0)
            server.execute("ALTER DATABASE migrating RENAME TO migrated")
    for database in connections.settings.values():
        database["TEST"]["TEMPLATE"] = "migrated"


@pytest.fixture(scope="session", autouse=True)
def _everything_pooled(request: pytest.FixtureRequest) -> Iterator[None]:
    """With ``--pooler``, let everything go through a pooler."""
    if not request.config.option.pooler:
        yield
        return
    from tests.support.poolers import between  # imports the models

    request.getfixturevalue("django_db_setup")
    with (
        request.getfixturevalue("django_db_blocker").unblock(),
        between("default", "other") as pooler,
        leftovers_found(request.config.pluginmanager, pooler),
    ):
        yield


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not import the folders all of whose tests are left out, unless they are named."""
    is_folder = collection_path.parent == ROOT / "tests" and collection_path.name in APART
    return (is_folder and f"not {collection_path.name}" in config.option.markexpr) or None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is long without ``--long``, and what is about direct connections with ``--pooler``."""
    if not config.option.long:
        long = [item for item in items if item.get_closest_marker("long")]
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item not in long]
    if config.option.pooler:
        skip_what_needs_a_session(items)


def pytest_configure(config: pytest.Config) -> None:
    """Watch the loggers, declare the marker, and start the server, the latter only in the controller."""
    config.pluginmanager.register(LoggersKept())
    config.addinivalue_line("markers", "promise(*names): what the test holds of tests/promises.toml")
    # A new session plans and compiles everything anew, which takes some 20 ms. The flush resets the old one.
    TransactionTestCase._should_reload_connections = lambda self: False  # type: ignore[attr-defined]
    gc.disable()  # until all tests are collected: nearly everything that is made before is kept
    if os.environ.get("DATABASE_URL") or config.option.collectonly:
        return
    _remove_left_servers()
    folder = ROOT / "var" / f"test-{os.getpid()}"
    config.stash[SERVER] = folder
    with kept_cluster(folder.with_name(f"{folder.name}-cluster")):
        os.environ["DATABASE_URL"] = ensure_server(folder, durable=False)
    _make_passwords_cheap(os.environ["DATABASE_URL"])
    # pytest-django has read the settings before any conftest.py, so their addresses are set here.
    for name, address in databases(os.environ["DATABASE_URL"]).items():
        del address["ENGINE"]  # which settings may replace
        settings.DATABASES[name].update(address)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove the server that this run started."""
    folder = config.stash.get(SERVER, None)
    if folder is not None:
        remove_server(folder)
        del os.environ["DATABASE_URL"]
        remove_cluster()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Forget the sessions that a failed test has lost: all tests after it would fail, too."""
    for connection in connections.all(initialized_only=True):
        if getattr(connection.connection, "closed", False):
            connection.close()


def pytest_collection_finish() -> None:
    """Exclude all current objects from later garbage collections, because they are kept anyway."""
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_report_header() -> str:
    """Show the server's version, so that a run of the matrix can be verified."""
    url = os.environ.get("DATABASE_URL")
    if not url:
        return "PostgreSQL: not started"
    with psycopg.connect(url) as connection:
        return f"PostgreSQL: {connection.info.parameter_status('server_version')}"


def _make_passwords_cheap(url: str) -> None:
    """Hash passwords with one round. 4,096 rounds take 6 ms per connection, and the tests open thousands."""
    with psycopg.connect(url, autocommit=True) as connection:
        if connection.info.server_version >= 160000:
            connection.execute("SET scram_iterations = 1")
            connection.execute(
                psycopg.sql.SQL("ALTER ROLE CURRENT_USER PASSWORD {}").format(connection.info.password)
            )


def _remove_left_servers() -> None:
    for folder in (ROOT / "var").glob("test-*"):  # test-<process id>, test-<process id>-<what for>
        if not _is_alive(int(folder.name.split("-")[1])):
            remove_server(folder)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
