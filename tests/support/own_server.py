"""A separate server for a test, which can be stopped and started again at the same address."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import environ
import psycopg
from django.core.management import call_command
from django.db import connections

from example_project.embedded import ensure_server, remove_server
from example_project.embedded_programs import EmbeddedServerError, run

from .clusters import copied_clusters
from .databases import alias
from .sessions import Connection

__all__ = ["OwnServer", "own_server"]


class OwnServer:
    """A running PostgreSQL with the tables of the default database's apps."""

    def __init__(self, folder: Path) -> None:
        with copied_clusters():
            self.url = ensure_server(folder, durable=False)
        self.database: dict[str, Any] = {
            **environ.Env.db_url_config(self.url), "ENGINE": "django.db.backends.postgresql"
        }  # fmt: skip
        with alias("own", **self.database):
            call_command("migrate", database="own", run_syncdb=True, verbosity=0)
        with self.connect() as connection:
            row = connection.execute("SHOW data_directory").fetchone()
            assert row is not None
            self.data = Path(row[0])

    def connect(self) -> Connection:
        """Open a separate connection. The caller closes it."""
        return psycopg.connect(self.url, autocommit=True)

    def stop(self, mode: str = "fast") -> None:
        """Stop the server. ``fast`` closes all connections, and ``immediate`` is a crash."""
        run("pg_ctl", "stop", "-D", str(self.data), "-m", mode)

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

    def start(self, *more: str) -> None:
        """Start the server with its previous options, including the port, and these."""
        _, *options = shlex.split((self.data / "postmaster.opts").read_text())
        del options[options.index("-D") : options.index("-D") + 2]
        log = str(self.data / "server.log")
        run("pg_ctl", "start", "-D", str(self.data), "-l", log, "-o", shlex.join([*options, *more]), "-w")


@contextmanager
def own_server(folder: Path) -> Iterator[OwnServer]:
    """Run a server in a folder, and remove it at the end of the block."""
    try:
        yield OwnServer(folder)
    finally:
        connections.close_all()
        remove_server(folder)
