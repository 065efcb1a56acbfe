"""A real pgbouncer in transaction mode, with one connection to the server of the run.

It has one connection so that all clients use the same session of the server: if a client leaves something in
the session, the next client finds it.
"""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.db import connections

from .sessions import Connection
from .workers import until

__all__ = ["Pooler", "pgbouncer"]

CONFIG = """
[databases]
* = host={HOST} port={PORT} user={USER} password={PASSWORD}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir = {sockets}
auth_type = any
pool_mode = transaction
default_pool_size = 1
ignore_startup_parameters = extra_float_digits
"""


class Pooler:
    """A pgbouncer that can be stopped and started again at the same address."""

    def __init__(self, program: str, folder: Path) -> None:
        self._program = program
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        (folder / "sockets").mkdir()
        (folder / "sockets").chmod(0o777)
        settings = connections["default"].settings_dict
        text = CONFIG.format(port=self.port, sockets=folder / "sockets", **settings)
        (folder / "pgbouncer.ini").write_text(text)

    def address(self) -> dict[str, Any]:
        """Return the keys of an alias in DATABASES that connects through the pooler."""
        return {"HOST": "127.0.0.1", "PORT": self.port}

    def socket_address(self) -> dict[str, Any]:
        """Return the same for the pooler's Unix socket."""
        return {"HOST": str(self._folder / "sockets"), "PORT": self.port}

    def start(self) -> None:
        command = [self._program, *_user(), str(self._folder / "pgbouncer.ini")]
        with (self._folder / "pgbouncer.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        until(self._answers, what="pgbouncer to answer")

    def stop(self) -> None:
        """Stop the pooler at once, which closes all connections through it."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
            self._process = None

    def connect(self) -> Connection:
        """Open a separate connection through the pooler."""
        parameters = connections["default"].get_connection_params()
        for name in ("cursor_factory", "context"):
            parameters.pop(name, None)
        address = {"host": "127.0.0.1", "port": self.port, "prepare_threshold": None}
        return psycopg.connect(**{**parameters, **address, "autocommit": True})

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self._folder / "pgbouncer.log").read_text()
        try:
            self.connect().close()
        except psycopg.OperationalError:
            return False
        return True


def _user() -> list[str]:
    """Return the option for the user, because pgbouncer refuses to run as root."""
    if os.geteuid() != 0:
        return []
    names = {user.pw_name for user in pwd.getpwall()}
    return ["-u", next(name for name in ("postgres", "nobody") if name in names)]


@contextmanager
def pgbouncer() -> Iterator[Pooler]:
    """Run a pooler for the block. If pgbouncer is missing, the test is skipped, or fails with CI=true."""
    program = shutil.which("pgbouncer", path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin"]))
    if program is None:
        missing = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
        missing("pgbouncer is not installed")
    # Not in pytest's folder, which only its owner can access.
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    try:
        pooler = Pooler(program, folder)
        pooler.start()
        try:
            yield pooler
        finally:
            pooler.stop()
    finally:
        shutil.rmtree(folder)
