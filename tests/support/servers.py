"""Servers for a single test, in addition to the server of the run: a primary, and a standby that streams from
it.

Their files are in `var/test-<process id>-<name>`. If a run is killed, the next run removes them. The standby
is created from a copy of the stopped primary's data, so that only the programs of a plain server are needed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg

from example_project.embedded import ensure_server, remove_server, stop_server
from example_project.embedded_programs import give_to_server, run, shelter

from .clusters import copied_clusters, copy_data
from .workers import until

__all__ = ["Pair", "Server", "primary_and_standby"]

ROOT = Path(__file__).resolve().parents[2]


class Server:
    """A server that can be started and stopped. It keeps its data, but each start may use another port."""

    def __init__(self, name: str) -> None:
        self.folder = ROOT / "var" / f"test-{os.getpid()}-{name}"
        self.url = ""

    @property
    def port(self) -> int:
        return urlsplit(self.url).port or 0

    @property
    def data(self) -> Path:
        self.folder.mkdir(parents=True, exist_ok=True)  # shelter() tests access to it
        return shelter(self.folder.resolve()) / "data"

    def start(self) -> None:
        with copied_clusters():
            self.url = ensure_server(self.folder, durable=False)

    def stop(self) -> None:
        stop_server(self.folder)

    def crash(self) -> None:
        """Stop the server without notifying its clients or its standby."""
        run("pg_ctl", "stop", "-D", str(self.data), "-m", "immediate")

    def ask(self, query: str, parameters: Any = None) -> Any:
        """Return the first row of a query."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(query, parameters)
            return cursor.fetchone() if cursor.description else None

    def address(self) -> dict[str, Any]:
        """Return the keys of an alias in DATABASES that connects to the server."""
        parts = urlsplit(self.url)
        return {
            "NAME": "postgres", "USER": parts.username, "PASSWORD": parts.password,
            "HOST": parts.hostname, "PORT": parts.port, "TEST": {},
        }  # fmt: skip


class Pair:
    """A primary and its standby."""

    def __init__(self) -> None:
        self.primary = Server("primary")
        self.standby = Server("standby")

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
        alias = self.primary.address()
        ports = f"{self.primary.port},{self.standby.port}"
        return {
            **alias,
            "HOST": f"{alias['HOST']},{alias['HOST']}",
            "PORT": ports,
            "OPTIONS": {"target_session_attrs": "read-write"},
        }

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
