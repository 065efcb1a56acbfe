"""What stands between clients and the server: a real pgbouncer in transaction mode, and TCP proxies.

By default the pooler has one connection to the server, so that all clients use the same session: if a client
leaves something in the session, the next client finds it. With many connections that take turns (``MANY``),
each transaction of a client gets another session than the one before: what it left there is not there.

A proxy delays and resets connections. One that *forgets* a connection reads what arrives from both ends and
drops it. So both ends find that everything is acknowledged, and neither hears that nothing arrives.
"""

from __future__ import annotations

import os
import pwd
import random
import shutil
import socket
import struct
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import sleep
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
            self._process.kill()  # after SIGTERM, newer versions wait for the clients
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


# --- A TCP proxy between clients and a server: it delays, forgets and resets connections


CHUNK = 65536
STARTED = 100
"""Bytes, after which a client has said its name. It asks for encryption before that."""


class Link:
    """A connection of a client, with its connection to the server."""

    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket) -> None:
        self.is_forgotten = False
        self.started = b""
        """What the client has sent first: the parameters of its connection."""
        self._proxy = proxy
        self._ends = (client, server)
        self._open = 2
        proxy.links.add(self)
        for source, target in [(client, server), (server, client)]:
            threading.Thread(target=self._pump, args=(source, target), daemon=True).start()

    def reset(self) -> None:
        """Reset both connections (RST)."""
        self._proxy.links.discard(self)
        self.is_forgotten = True
        for end in self._ends:
            with suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                # A thread that reads keeps the socket open, so the reset would wait for it.
                end.shutdown(socket.SHUT_RD)
            end.close()

    def close_one_way(self) -> None:
        """Tell the server that nothing more comes, and go on to pass on its answers."""
        with suppress(OSError):
            self._ends[1].shutdown(socket.SHUT_WR)

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError, ValueError):
            while data := source.recv(CHUNK):
                if source is self._ends[0] and len(self.started) < STARTED:
                    self.started += data
                if self._proxy.delay:
                    sleep(random.uniform(*self._proxy.delay))
                if source is self._ends[0] and self._proxy.withheld:
                    data = data.removesuffix(self._proxy.withheld)
                if not self.is_forgotten:
                    target.sendall(data)
            if not self.is_forgotten:
                target.shutdown(socket.SHUT_WR)
        self._open -= 1
        if not self._open:
            self._proxy.links.discard(self)
            for end in self._ends:
                end.close()


class Proxy:
    """Accepts connections at `port`, and connects each of them to the server."""

    def __init__(self, host: str, port: int) -> None:
        self.delay: tuple[float, float] | None = None
        """Seconds by which each packet is late."""
        self.withheld = b""
        """What is left out where it ends what a client sends."""
        self.links: set[Link] = set()
        self._server = (host, port)
        self.port = 0
        self.open_door()

    def open_door(self) -> None:
        """Accept connections, again at the same port."""
        self._listener = socket.create_server(("127.0.0.1", self.port), backlog=200)
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def close_door(self) -> None:
        """Accept no more connections."""
        # A thread that accepts keeps the socket open.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def close(self) -> None:
        """Accept no more, and close all connections."""
        with suppress(OSError):
            self.close_door()
        for link in list(self.links):
            link.reset()

    def forget(self, name: bytes = b"") -> list[Link]:
        """Forget all connections that are open and were opened with this name, and return them."""
        forgotten = [link for link in list(self.links) if name in link.started and not link.is_forgotten]
        for link in forgotten:
            link.is_forgotten = True
        return forgotten

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                try:
                    server = socket.create_connection(self._server)
                except OSError:
                    client.close()
                    continue
                for end in (client, server):
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                Link(self, client, server)


@contextmanager
def proxy(host: str, port: int) -> Iterator[Proxy]:
    """Run a proxy in front of this server for the block."""
    made = Proxy(host, port)
    try:
        yield made
    finally:
        made.close()
