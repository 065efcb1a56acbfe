"""A separate PostgreSQL server in a folder. It needs no installation and no Docker, and also works for root.

    folder/lock          locked while a server is looked up, started or stopped, so that two callers share one
    folder/server.json   port, password and path of the data, readable by its owner only
    folder/data/         the data, with server.log

The server listens on a free port of 127.0.0.1 and requires a random password. It has no socket file, so the
length of the folder's name does not matter. A server that answers on the port is used only if it accepts the
password and reports our data folder, so the server of somebody else is never used. A process is stopped only
if its command line contains our data folder, because a `postmaster.pid` that a crash left behind may contain
the id of another process.

This was tested on Linux. It should work on macOS as well. Windows is not supported.
"""

from __future__ import annotations

import fcntl
import json
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from example_project.embedded_programs import EmbeddedServerError, give_to_server, run, shelter

__all__ = ["EmbeddedServerError", "ensure_server", "remove_server", "stop_server"]

# A free port may be taken before the server uses it, and the children of a crashed server need time to end.
START_ATTEMPTS = 5
START_SECONDS = 60

SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "200",
    "timezone": "UTC",
    "log_timezone": "UTC",
}
# Only for tests: a crash of the machine may destroy all data.
NOT_DURABLE = {"fsync": "off", "full_page_writes": "off", "max_prepared_transactions": "10"}


def ensure_server(folder: Path, *, durable: bool = True) -> str:
    """Return the DATABASE_URL of the server in `folder`. Start the server if it is not running.

    `durable=False` turns off fsync, for tests. Raises EmbeddedServerError, also if the server is already
    running with another value of `durable`.
    """
    with _locked(folder) as folder:
        server = _Server.load(folder) or _Server.create(folder, durable)
        if server.process() is not None and server.durable != durable:
            raise EmbeddedServerError(
                f"The server in {folder} runs with durable={server.durable}. Stop it, or use another folder."
            )
        deadline = time.monotonic() + START_SECONDS
        while not server.answers():
            if server.process() is None:
                server.start(durable)
            elif time.monotonic() > deadline:
                raise EmbeddedServerError(
                    f"The server in {server.data} (process {server.process()}) does not answer: see its log."
                )
            else:
                time.sleep(0.1)  # the server is recovering from a crash, or is shutting down
        return server.url


def stop_server(folder: Path) -> None:
    """Stop the server in `folder`, if it is running. The data is kept."""
    if folder.exists():
        with _locked(folder) as folder:
            server = _Server.load(folder)
            if server is not None:
                server.stop()


def remove_server(folder: Path) -> None:
    """Stop the server in `folder`, and delete the folder with all its data."""
    if folder.exists():
        with _locked(folder) as folder:
            server = _Server.load(folder)
            if server is not None:
                server.stop()
                shutil.rmtree(server.data if server.data.parent == folder else server.data.parent)
            shutil.rmtree(folder, ignore_errors=True)  # another process may delete it at the same time


class _Server:
    """One server: the contents of its `server.json`, and the operations on it."""

    def __init__(self, folder: Path, data: str, password: str, port: int = 0, durable: bool = True) -> None:
        self.folder = folder
        self.data = Path(data)
        self.password = password
        self.port = port
        self.durable = durable

    @property
    def url(self) -> str:
        return f"postgresql://postgres:{self.password}@127.0.0.1:{self.port}/postgres"

    @classmethod
    def load(cls, folder: Path) -> _Server | None:
        """Return the server of a folder, or None if the folder has no complete server."""
        try:
            state: dict[str, Any] = json.loads((folder / "server.json").read_text())
        except FileNotFoundError:
            return None
        server = cls(folder, **state)
        return server if server.data.exists() else None

    @classmethod
    def create(cls, folder: Path, durable: bool) -> _Server:
        """Create the data. It gets its final name only when it is complete, in case initdb is killed."""
        run("postgres", "--version")  # fails before anything is created if there is no PostgreSQL
        home = shelter(folder)
        server = cls(folder, str(home / "data"), secrets.token_hex(16))
        if server.data.exists():
            raise EmbeddedServerError(f"The password to {server.data} is lost. Delete that folder.")
        server.save()
        fresh, password = home / "data.new", home / "password.new"
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(mode=0o700)
        _write_private(password, server.password)
        give_to_server(fresh)
        give_to_server(password)
        options = ["-U", "postgres", "-A", "scram-sha-256", f"--pwfile={password}"]
        options += [] if durable else ["--no-sync"]
        try:
            run("initdb", "-D", str(fresh), *options, "-E", "UTF8", "--locale=C.UTF-8")
        finally:
            password.unlink()
        fresh.rename(server.data)
        return server

    def save(self) -> None:
        """Write `server.json` atomically."""
        state = {
            "data": str(self.data),
            "password": self.password,
            "port": self.port,
            "durable": self.durable,
        }
        fresh = self.folder / "server.json.new"
        _write_private(fresh, json.dumps(state))
        fresh.replace(self.folder / "server.json")

    def process(self) -> int | None:
        """Return the id of the server's process, or None if it is not running."""
        try:
            pid = int((self.data / "postmaster.pid").read_text().partition("\n")[0])
        except (FileNotFoundError, ValueError):
            return None
        return pid if str(self.data) in _command_line(pid) else None

    def start(self, durable: bool) -> None:
        """Start the server, which must not be running, on a free port."""
        self._check_version()
        self.durable = durable
        for _ in range(START_ATTEMPTS):
            # A crash may leave this file. PostgreSQL would take any live process with that id for a server.
            (self.data / "postmaster.pid").unlink(missing_ok=True)
            self.port = _free_port()
            self.save()
            try:
                self._start()
            except EmbeddedServerError as error:
                failure = f"{error}\n{self._end_of_log()}"
                if self.process() is not None:
                    break  # it is starting slowly
                time.sleep(0.3)
            else:
                return
        raise EmbeddedServerError(f"PostgreSQL did not start. {failure}")

    def stop(self) -> None:
        """Stop the server if it is running. Open connections are closed, and committed data is kept."""
        if self.process() is not None:
            run("pg_ctl", "stop", "-D", str(self.data), "-m", "fast", "-t", str(START_SECONDS))

    def answers(self) -> bool:
        """Return whether our server answers. Raises EmbeddedServerError if another server answers."""
        if self.process() is None:
            return False
        try:
            with psycopg.connect(self.url, connect_timeout=5) as connection:
                answer = connection.execute("SHOW data_directory").fetchone()
        except psycopg.OperationalError:
            return False
        if answer is None or Path(answer[0]).resolve() != self.data:
            raise EmbeddedServerError(f"The server on port {self.port} is not ours: its data is in {answer}.")
        return True

    def _start(self) -> None:
        settings = {**SETTINGS, **({} if self.durable else NOT_DURABLE), "port": str(self.port)}
        options = " ".join(f"-c {name}={value}" for name, value in settings.items())
        where = ["-D", str(self.data), "-l", str(self.data / "server.log")]
        run("pg_ctl", "start", *where, "-o", options, "-t", str(START_SECONDS))

    def _end_of_log(self) -> str:
        log = self.data / "server.log"
        return "\n".join(log.read_text(errors="replace").splitlines()[-5:]) if log.exists() else ""

    def _check_version(self) -> None:
        data = (self.data / "PG_VERSION").read_text().strip()
        programs = run("postgres", "--version").split()[2].partition(".")[0]  # postgres (PostgreSQL) 18.6
        if data != programs:
            raise EmbeddedServerError(
                f"{self.data} was created by PostgreSQL {data}, but this is {programs}. Use another folder."
            )


@contextmanager
def _locked(folder: Path) -> Iterator[Path]:
    """Hold the folder's lock. Yield the folder's path with all links resolved."""
    folder = folder.resolve()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield folder
    except OSError as error:
        raise EmbeddedServerError(
            f"The server's folder cannot be used: {error}. If another user owns it, use another folder."
        ) from error


def _write_private(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    path.write_text(text)


def _command_line(pid: int) -> str:
    """Return the command line of a process, or an empty string if there is no such process."""
    if Path("/proc/self/cmdline").exists():
        try:
            return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            return ""
    ps = subprocess.run(["ps", "-o", "args=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return ps.stdout


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
