"""Servers for a single test, besides that of the run: one that is stopped and started again at the same
address, and a primary with a standby that streams from it.

The data of a new server is copied, which is quicker than initdb: the run keeps a copy of its own server's
data, from before the first start, in a folder that the environment names. All pytest workers use it. A run on
a server that DATABASE_URL names has no such data, and runs initdb for each server. A standby is made from a
copy of the stopped primary's data, so that only the programs of a plain server are needed. Their files are
in `var/test-<process id>-<name>`. If a run is killed, the next run removes them.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch
from urllib.parse import urlsplit

import environ
import psycopg
from django.core.management import call_command
from django.db import connections

from example_project import embedded
from example_project.embedded import ensure_server, remove_server
from example_project.embedded_programs import EmbeddedServerError, give_to_server, run, shelter

from .databases import alias
from .sessions import Connection
from .workers import until

FOLDER = "TEST_CLUSTER"


@contextmanager
def kept_cluster(folder: Path) -> Iterator[None]:
    """Keep a copy of the data that initdb creates in this block."""

    def run_and_keep(program: str, *arguments: str) -> str:
        said = run(program, *arguments)
        if program == "initdb":
            (password,) = (option for option in arguments if option.startswith("--pwfile="))
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(mode=0o700)
            copy_data(arguments[1], folder / "data")
            (folder / "password").write_text(Path(password.partition("=")[2]).read_text())
            os.environ[FOLDER] = str(folder)
        return said

    with patch.object(embedded, "run", run_and_keep):
        yield


@contextmanager
def copied_clusters() -> Iterator[None]:
    """Copy that data wherever a server is created in this block. So all have the same password."""
    if FOLDER not in os.environ:
        yield
        return
    kept = Path(os.environ[FOLDER])
    password = (kept / "password").read_text()

    def copy(program: str, *arguments: str) -> str:
        if program != "initdb":
            return run(program, *arguments)
        copy_data(f"{kept}/data/.", arguments[1])
        return ""

    secrets = SimpleNamespace(token_hex=lambda size: password)
    with patch.object(embedded, "run", copy), patch.object(embedded, "secrets", secrets):
        yield


def remove_cluster() -> None:
    """Delete the data that was kept."""
    if folder := os.environ.pop(FOLDER, ""):
        shutil.rmtree(folder)


def copy_data(source: str | Path, target: str | Path) -> None:
    """Copy the data of a server that does not run."""
    subprocess.run(["cp", "-a", str(source), str(target)], check=True)  # keeps the owner and the permissions


ROOT = Path(__file__).resolve().parents[2]


class Server:
    """A server with its data in a folder. It can be stopped, and started again at the same port."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = ""

    @property
    def port(self) -> int:
        return urlsplit(self.url).port or 0

    @property
    def data(self) -> Path:
        self.folder.mkdir(parents=True, exist_ok=True)  # shelter() tests access to it
        return shelter(self.folder.resolve()) / "data"

    def start(self, *more: str) -> None:
        """Start the server, again with its previous options, including the port, and these."""
        if not self.url:
            with copied_clusters():
                self.url = ensure_server(self.folder, durable=False)
            return
        _, *options = shlex.split((self.data / "postmaster.opts").read_text())
        del options[options.index("-D") : options.index("-D") + 2]
        log = str(self.data / "server.log")
        run("pg_ctl", "start", "-D", str(self.data), "-l", log, "-o", shlex.join([*options, *more]), "-w")

    def stop(self, mode: str = "fast") -> None:
        """Stop the server. ``fast`` closes all connections."""
        run("pg_ctl", "stop", "-D", str(self.data), "-m", mode)

    def crash(self) -> None:
        """Stop the server without notifying its clients or its standby."""
        self.stop("immediate")

    def connect(self) -> Connection:
        """Open a separate connection. The caller closes it."""
        return psycopg.connect(self.url, autocommit=True)

    def ask(self, query: str, parameters: Any = None) -> Any:
        """Return the first row of a query."""
        with self.connect() as connection:
            cursor = connection.execute(query, parameters)
            return cursor.fetchone() if cursor.description else None

    def address(self) -> dict[str, Any]:
        """Return the keys of an alias in DATABASES that connects to the server."""
        return {**environ.Env.db_url_config(self.url), "ENGINE": "django.db.backends.postgresql", "TEST": {}}


class OwnServer(Server):
    """A running PostgreSQL with the tables of the default database's apps."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.start()
        self.database = self.address()
        with alias("own", **self.database):
            call_command("migrate", database="own", run_syncdb=True, verbosity=0)

    def is_running(self) -> bool:
        """Return whether the server runs, or starts."""
        try:
            run("pg_ctl", "status", "-D", str(self.data))
        except EmbeddedServerError:
            return False
        return True

    def listen_at(self, address: str) -> None:
        """Restart the server, so that clients can also reach it at this address."""
        with (self.data / "pg_hba.conf").open("a") as rules:
            rules.write("host all all samenet scram-sha-256\n")
        self.stop()
        self.start("-c", f"listen_addresses=127.0.0.1,{address}")


@contextmanager
def own_server(folder: Path) -> Iterator[OwnServer]:
    """Run a server in a folder, and remove it at the end of the block."""
    try:
        yield OwnServer(folder)
    finally:
        connections.close_all()
        remove_server(folder)


class Pair:
    """A primary and its standby."""

    def __init__(self) -> None:
        self.primary, self.standby = (
            Server(ROOT / "var" / f"test-{os.getpid()}-{name}") for name in ("primary", "standby")
        )

    def start(self) -> None:
        self.primary.start()
        self.primary.stop()
        self._copy()
        self.primary.start()
        address = urlsplit(self.primary.url)
        settings = f"host={address.hostname} port={address.port} user=postgres password={address.password}"
        with (self.standby.data / "postgresql.auto.conf").open("a") as config:
            config.write(f"primary_conninfo = '{settings}'\n")
        self.standby.start()
        until(lambda: self.primary.ask("SELECT 1 FROM pg_stat_replication WHERE state = 'streaming'"))

    def catch_up(self) -> None:
        """Wait until the standby has replayed everything that the primary has written so far."""
        (position,) = self.primary.ask("SELECT pg_current_wal_flush_lsn()::text")
        reached = "SELECT 1 WHERE pg_last_wal_replay_lsn() >= %s::pg_lsn"
        until(lambda: self.standby.ask(reached, [position]), what="the standby to catch up")

    def promote(self) -> None:
        """Make the standby the primary."""
        assert self.standby.ask("SELECT pg_promote()") == (True,)

    def address(self) -> dict[str, Any]:
        """Return the keys of an alias in DATABASES that connects to the current primary."""
        return {
            **self.primary.address(), "HOST": "127.0.0.1,127.0.0.1",
            "PORT": f"{self.primary.port},{self.standby.port}",
            "OPTIONS": {"target_session_attrs": "read-write"},
        }  # fmt: skip

    def remove(self) -> None:
        for server in (self.standby, self.primary):
            remove_server(server.folder)

    def _copy(self) -> None:
        data = self.standby.data
        copy_data(self.primary.data, data)
        (data / "standby.signal").touch()
        give_to_server(data / "standby.signal")
        state = (self.primary.folder / "server.json").read_text()
        (self.standby.folder / "server.json").write_text(state.replace(str(self.primary.data), str(data)))


@contextmanager
def primary_and_standby() -> Iterator[Pair]:
    """Run both servers for the block, and then remove them."""
    pair = Pair()
    pair.remove()
    try:
        pair.start()
        yield pair
    finally:
        pair.remove()
