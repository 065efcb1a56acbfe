"""A real pgbouncer in transaction mode, between clients and the server of the run.

By default it has one connection to the server, so that all clients use the same session: if a client leaves
something in the session, the next client finds it. With many connections that take turns (``MANY``), each
transaction of a client gets another session than the one before: what the client left in it is not there.
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

from .sessions import DIRECT, Connection, parameters_of
from .workers import until

CONFIG = """
[databases]
* = host={HOST} port={PORT} user={USER} password={PASSWORD}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir = {sockets}
auth_type = any
pool_mode = transaction
max_client_conn = 1000
"""
DEFAULTS = {"default_pool_size": 1, "ignore_startup_parameters": "extra_float_digits"}
MANY = {
    "default_pool_size": 30,
    "server_round_robin": 1,
    "server_idle_timeout": 2,
    "ignore_startup_parameters": "extra_float_digits, options",
}


class Pooler:
    """A pgbouncer that can be stopped and started again at the same address."""

    def __init__(self, program: str, folder: Path, **more: Any) -> None:
        self._program = program
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        (folder / "sockets").mkdir()
        (folder / "sockets").chmod(0o777)
        settings = {**connections["default"].settings_dict, **{k.upper(): v for k, v in DIRECT.items()}}
        text = CONFIG.format(port=self.port, sockets=folder / "sockets", **settings)
        text += "".join(f"{name} = {value}\n" for name, value in {**DEFAULTS, **more}.items())
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
        address = {"host": "127.0.0.1", "port": self.port, "prepare_threshold": None}
        return psycopg.connect(**{**parameters_of(), **address}, autocommit=True)

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self._folder / "pgbouncer.log").read_text()
        try:
            self.connect().close()
        except psycopg.OperationalError:
            return False
        return True


def _program() -> str | None:
    return shutil.which("pgbouncer", path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin"]))


def _user() -> list[str]:
    """Return the option for the user, because pgbouncer refuses to run as root."""
    if os.geteuid() != 0:
        return []
    names = {user.pw_name for user in pwd.getpwall()}
    return ["-u", next(name for name in ("postgres", "nobody") if name in names)]


def lacks_pgbouncer() -> str:
    """Return the name of the program if it is missing."""
    return "" if _program() else "pgbouncer"


@contextmanager
def pgbouncer(**settings: Any) -> Iterator[Pooler]:
    """Run a pooler with these settings for the block. If pgbouncer is missing, the test is skipped, or fails
    with CI=true.
    """
    program = _program()
    if program is None:
        missing = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
        missing("pgbouncer is not installed")
    # Not in pytest's folder, which only its owner can access.
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    try:
        pooler = Pooler(program, folder, **settings)
        pooler.start()
        try:
            yield pooler
        finally:
            pooler.stop()
    finally:
        shutil.rmtree(folder)


@contextmanager
def between(*aliases: str) -> Iterator[Pooler]:
    """Let these aliases go through a pooler whose connections take turns, in all threads and commands.

    The connections that ``open_raw`` opens stay direct. Connections of other threads must be closed before.
    """
    before = {name: dict(connections.settings[name]) for name in aliases}
    with pgbouncer(**MANY) as pooler:
        connections.close_all()
        DIRECT.update(host=before[aliases[0]]["HOST"], port=before[aliases[0]]["PORT"])
        for name in aliases:
            connections.settings[name].update(pooler.address(), DISABLE_SERVER_SIDE_CURSORS=True)
        try:
            yield pooler
        finally:
            connections.close_all()
            DIRECT.clear()
            for name in aliases:
                connections.settings[name].update(before[name])
