"""What a scenario may have in place of the database of the tests. Each is a context manager for a folder: in
its block, Django's default database is the one of that world, for the load, the workers and the audit.
"""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from django.db import connections

from tests.support.commands import ROOT, django_environment
from tests.support.databases import fresh_database
from tests.support.poolers import Pooler, between
from tests.support.release import previous
from tests.support.servers import OwnServer, own_server

#: What archives and shallow clones do not have. In CI, this is skipped by name, too, unlike missing tools.
NO_HISTORY = "the history of the repository (git fetch --unshallow)"


def lacks_history() -> str:
    """Return what is missing to build the previous release, or nothing."""
    if shutil.which("git") is None:
        return "git"
    if _commit():
        return ""
    is_shallow = _git("rev-parse", "--is-shallow-repository").stdout.strip() != b"false"
    return NO_HISTORY if is_shallow else f"the commit {previous()}, the previous release, in the history"


def previous_release() -> Path:
    """Return the folder with the previous release. It is taken from the history once."""
    commit = _commit()
    folder = ROOT / "var" / "previous" / commit
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        new = Path(tempfile.mkdtemp(dir=folder.parent))
        archive = _git("archive", commit, "django_pgqueue", "tests", "example_project")
        assert archive.returncode == 0, archive.stderr.decode()
        with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
            tar.extractall(new, filter="data")
        try:
            new.rename(folder)
        except OSError:  # another process was faster
            shutil.rmtree(new)
    return folder


def changed_since(*paths: str) -> list[str]:
    """Return the files that have changed, or are gone, since the previous release. New ones do not count."""
    diff = _git("diff", "--name-only", "--no-renames", "--diff-filter=a", _commit(), "--", *paths)
    assert diff.returncode == 0, diff.stderr.decode()
    return diff.stdout.decode().split()


def last_migration(folder: Path) -> str:
    """Return the name of the newest migration of the release in a folder."""
    return max(path.stem for path in (folder / "django_pgqueue" / "migrations").glob("0*.py"))


def manage(*arguments: str, folder: Path = ROOT) -> None:
    """Run a command of Django with the code of a folder, on the current databases."""
    done = subprocess.run(
        [sys.executable, "-m", "django", *arguments],
        cwd=folder, env=django_environment(folder), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


@cache
def _commit() -> str:
    return _git("rev-parse", "--quiet", "--verify", f"{previous()}^{{commit}}").stdout.decode().strip()


def _git(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    # The files may belong to another user, as in a container.
    command = ["git", "-c", "safe.directory=*", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, check=False)


@contextmanager
def server_of_its_own(folder: Path, settings: Mapping[str, str] | None = None) -> Iterator[OwnServer]:
    """Run a server that faults may stop and start, with the tables of the apps, and maybe with settings."""
    with own_server(folder / "server") as server, at_database(**server.database):
        if settings:
            change_settings(server, settings)
            server.stop()
            server.start()
            connections.close_all()
        yield server


def change_settings(server: OwnServer, settings: Mapping[str, str]) -> None:
    """Give a server settings that count from its next start."""
    with server.connect() as own:
        for name, value in settings.items():
            own.execute(f"ALTER SYSTEM SET {name} = '{value}'")


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
