"""The PostgreSQL server of a benchmark, and what every run needs of it.

DATABASE_URL names the server. Without it the benchmark starts a server of its own in ``var/benchmarks``, with
PostgreSQL's default settings: durable, so each commit waits for the disk.
"""

from __future__ import annotations

import atexit
import os
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg

from example_project.embedded import ensure_server, stop_server

from .environments import FOLDER

__all__ = [
    "Costs",
    "connect",
    "costs",
    "create_database",
    "describe",
    "drop_database",
    "server_url",
    "settle",
]

#: What decides how durable and how fast a commit is, and what the machine offers.
SHOWN = (
    "server_version",
    "fsync",
    "synchronous_commit",
    "full_page_writes",
    "shared_buffers",
    "max_wal_size",
    "commit_delay",
)


def server_url() -> str:
    """Return the address of the server. The benchmark's own is started, and stopped when the program ends."""
    if url := os.environ.get("DATABASE_URL"):
        return url
    atexit.register(stop_server, FOLDER.parent)
    return ensure_server(FOLDER.parent)


def create_database(server: str, name: str) -> str:
    """Create an empty database, in place of one with the same name, and return its address."""
    drop_database(server, name)
    with connect(server) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    return urlunsplit(urlsplit(server)._replace(path=f"/{name}"))


def drop_database(server: str, name: str) -> None:
    """Drop a database if it exists, and end its sessions."""
    with connect(server) as connection:
        connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')


def connect(url: str) -> psycopg.Connection[tuple[Any, ...]]:
    """Return a connection in autocommit mode."""
    return psycopg.connect(url, autocommit=True)


def settle(connection: psycopg.Connection[Any], *, checkpoint: bool = True) -> None:
    """Give each run the same start: nothing to vacuum, statistics up to date, all data on disk."""
    connection.execute("VACUUM ANALYZE")
    if checkpoint:
        connection.execute("CHECKPOINT")


class Costs:
    """What the server has done so far: bytes of WAL (the whole server), commits (this database)."""

    def __init__(self, wal: int, commits: int) -> None:
        self.wal = wal
        self.commits = commits

    def since(self, before: Costs) -> Costs:
        """Return the difference."""
        return Costs(self.wal - before.wal, self.commits - before.commits)


def costs(connection: psycopg.Connection[Any]) -> Costs:
    """Return the counters of the server."""
    connection.execute("SELECT pg_stat_clear_snapshot()")
    row = connection.execute(
        "SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint, xact_commit FROM pg_stat_database"
        " WHERE datname = current_database()"
    ).fetchone()
    assert row is not None
    return Costs(*row)


def describe(server: str) -> dict[str, str]:
    """Return the settings of the server that the figures depend on."""
    with connect(server) as connection:
        return {
            name: str(row[0])
            for name in SHOWN
            if (row := connection.execute("SELECT current_setting(%s, true)", [name]).fetchone())
        }
