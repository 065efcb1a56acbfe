"""A PostgreSQL server of one's own in a folder: nothing to install, no Docker, root or not.

    folder/lock          taken while a server is sought, started or stopped: two callers get the same one
    folder/server.json   port, password and place of the data, readable by its owner only
    folder/data/         the data, with server.log

The server listens on a free port of 127.0.0.1 and asks for a random password; it has no socket file, so that
the length of the folder's name does not matter. Whoever answers on the port is believed only if it takes the
password and names our data folder: a stranger's server is never used, and a process is stopped only if its
command line names our data folder (a `postmaster.pid` left by a crash may carry another process's number).

Tried on Linux. Nothing here is meant to keep macOS from working; Windows is not supported.
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

# A port found free may be taken before the server has it; a crashed server's children need a moment to end.
START_ATTEMPTS = 5
START_SECONDS = 60

SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "200",
    "timezone": "UTC",
    "log_timezone": "UTC",
}
# Only for tests: a crash of the machine may cost all data.
NOT_DURABLE = {"fsync": "off", "full_page_writes": "off", "max_prepared_transactions": "10"}


def ensure_server(folder: Path, *, durable: bool = True) -> str:
    """The DATABASE_URL of the server that lives in `folder`, started if it does not run.

    `durable=False` turns fsync off, for tests. A running server of the other kind is an error.
    Raises EmbeddedServerError.
    """
    with _locked(folder) as folder:
        server = _Server.load(folder) or _Server.create(folder)
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
                    f"The server in {server.data} (process {server.process()}) is silent: see its server.log."
                )
            else:
                time.sleep(0.1)  # it recovers from a crash, or is just ending
        return server.url


def stop_server(folder: Path) -> None:
    """Stop the server of `folder`; nothing happens if none runs. The data stays."""
    if folder.exists():
        with _locked(folder) as folder:
            server = _Server.load(folder)
            if server is not None:
                server.stop()


def remove_server(folder: Path) -> None:
    """Stop the server of `folder` and delete the folder with all its data."""
    if folder.exists():
        with _locked(folder) as folder:
            server = _Server.load(folder)
            if server is not None:
                server.stop()
                shutil.rmtree(server.data if server.data.parent == folder else server.data.parent)
            shutil.rmtree(folder, ignore_errors=True)  # another process may have done so


class _Server:
    """One server: what its `server.json` says, and what can be done with it."""

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
        """The server of a folder where one was made completely, or None."""
        try:
            state: dict[str, Any] = json.loads((folder / "server.json").read_text())
        except FileNotFoundError:
            return None
        server = cls(folder, **state)
        return server if server.data.exists() else None

    @classmethod
    def create(cls, folder: Path) -> _Server:
        """Make the data. It gets its final name only when complete, so that a killed initdb leaves none."""
        run("postgres", "--version")  # nothing is made where there is nothing to run
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
        try:
            run("initdb", "-D", str(fresh), *options, "-E", "UTF8", "--locale=C.UTF-8")
        finally:
            password.unlink()
        fresh.rename(server.data)
        return server

    def save(self) -> None:
        """Write `server.json` whole or not at all."""
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
        """The id of the server's process, or None if it does not run."""
        try:
            pid = int((self.data / "postmaster.pid").read_text().partition("\n")[0])
        except (FileNotFoundError, ValueError):
            return None
        return pid if str(self.data) in _command_line(pid) else None

    def start(self, durable: bool) -> None:
        """Start the server, which does not run, on a free port."""
        self._check_version()
        self.durable = durable
        for _ in range(START_ATTEMPTS):
            # Left by a crash. PostgreSQL itself takes any living process with that number for a server.
            (self.data / "postmaster.pid").unlink(missing_ok=True)
            self.port = _free_port()
            self.save()
            try:
                self._start()
            except EmbeddedServerError as error:
                failure = f"{error}\n{self._end_of_log()}"
                if self.process() is not None:
                    break  # slow, but on its way
                time.sleep(0.3)
            else:
                return
        raise EmbeddedServerError(f"PostgreSQL did not start. {failure}")

    def stop(self) -> None:
        """Stop it, if it runs: open connections are closed, what was committed is kept."""
        if self.process() is not None:
            run("pg_ctl", "stop", "-D", str(self.data), "-m", "fast", "-t", str(START_SECONDS))

    def answers(self) -> bool:
        """Whether our server answers. Raises EmbeddedServerError if another one does."""
        if self.process() is None:
            return False
        try:
            with psycopg.connect(self.url, connect_timeout=5) as connection:
                answer = connection.execute("SHOW data_directory").fetchone()
        except psycopg.OperationalError:
            return False
        if answer is None or Path(answer[0]).resolve() != self.data:
            raise EmbeddedServerError(f"The server on port {self.port} is not ours: it works on {answer}.")
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
                f"{self.data} was made by PostgreSQL {data}, the programs are {programs}. Use another folder."
            )


@contextmanager
def _locked(folder: Path) -> Iterator[Path]:
    """Hold the folder's lock; gives the folder without links in its path."""
    folder = folder.resolve()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield folder
    except OSError as error:
        raise EmbeddedServerError(
            f"The server's folder cannot be used: {error}. If it is another user's, use another folder."
        ) from error


def _write_private(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    path.write_text(text)


def _command_line(pid: int) -> str:
    """How a process was called; empty if there is none with this number."""
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
