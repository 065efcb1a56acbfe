"""What a supervisor tells: the file that shows that it lives, systemd, and a user who stops the command."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from syrupy.assertion import SnapshotAssertion

from django_pgqueue.worker.supervisor.supervisor import WRITE_EVERY, Service, running_jobs, stopping

# -- the file


def test_the_file_is_written_at_its_interval_and_removed(tmp_path: Path) -> None:
    path = tmp_path / "alive"
    file = Service(str(path))
    file.sign(100.0, "1 of 1 process at work")
    assert path.read_text() == "1 of 1 process at work\n"
    assert file.next_sign == 100.0 + WRITE_EVERY
    file.sign(101.0, "too early")
    assert path.read_text() == "1 of 1 process at work\n"
    file.sign(100.0 + WRITE_EVERY, "stopping")
    assert path.read_text() == "stopping\n"
    assert list(tmp_path.iterdir()) == [path]
    file.remove()
    file.remove()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", ["/nowhere/alive", "/"])
def test_the_command_refuses_a_path_at_its_start(path: str) -> None:
    with pytest.raises(CommandError, match="cannot be written"):
        call_command("runqueueworker", "--alive-file", path)


# -- systemd


@pytest.fixture
def receiver() -> Iterator[socket.socket]:
    """A socket in the abstract name space, with an address that the kernel has chosen."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind("")
        receiver.setblocking(False)
        yield receiver


def told_to(receiver: socket.socket, **variables: str) -> Service:
    name: bytes = receiver.getsockname()
    return Service(environment={"NOTIFY_SOCKET": "@" + name[1:].decode(), **variables})


def heard(receiver: socket.socket) -> list[str]:
    messages = []
    while True:
        try:
            messages.append(receiver.recv(4096).decode())
        except BlockingIOError:
            return messages


def test_what_systemd_hears(receiver: socket.socket) -> None:
    manager = told_to(receiver)
    for _ in range(2):
        manager.starting(5.0)  # it cannot start yet and asks for more time
    for _ in range(2):
        manager.ready()
        manager.sign(1.0, "fine")
    manager.sign(2.0, "not so fine")
    manager.stopping(1.5)
    assert heard(receiver) == [
        *["EXTEND_TIMEOUT_USEC=35000000"] * 2,
        "READY=1", "STATUS=fine", "STATUS=not so fine", "STOPPING=1\nEXTEND_TIMEOUT_USEC=1500000",
    ]  # fmt: skip


def test_the_watchdog_hears_from_us_at_half_its_interval(receiver: socket.socket) -> None:
    manager = told_to(receiver, WATCHDOG_USEC="30000000", WATCHDOG_PID=str(os.getpid()))
    said = []
    for now in (100.0, 114.9, 115.0, 129.9, 131.0):
        manager.sign(now, "")
        said.append(len(heard(receiver)))
    assert said == [1, 0, 1, 0, 1]
    assert manager.next_sign == 146.0


@pytest.mark.parametrize(
    "variables",
    [{"WATCHDOG_PID": "1"}, {"WATCHDOG_USEC": "soon"}, {"WATCHDOG_USEC": "²"}, {"WATCHDOG_USEC": "0"}],
)
def test_a_watchdog_that_is_not_for_us(receiver: socket.socket, variables: dict[str, str]) -> None:
    manager = told_to(receiver, **{"WATCHDOG_USEC": "1000000", **variables})
    manager.sign(100.0, "")
    assert heard(receiver) == []
    assert manager.next_sign == float("inf")


def test_processes_that_it_starts_do_not_speak_to_systemd() -> None:
    variables = {"NOTIFY_SOCKET": "/a", "WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}
    Service(environment=variables)
    assert variables == {}


@pytest.mark.parametrize(
    ("path", "address"),
    [("", ""), ("/nowhere/alive", ""), ("", "/nowhere/at/all"), ("", "vsock:2:1234"), ("", "@" + 200 * "x")],
    ids=["nobody is to be told", "no file", "no socket", "no unix socket", "too long"],
)
def test_who_cannot_be_told_is_complained_about_once(
    path: str, address: str, caplog: pytest.LogCaptureFixture
) -> None:
    service = Service(path, environment={"NOTIFY_SOCKET": address} if address else {"WATCHDOG_USEC": "9"})
    service.ready()
    for number in range(3):
        service.sign(number * WRITE_EVERY, f"fine {number}")
    service.remove()
    assert (service.next_sign == float("inf")) is (path == "")
    assert [record.levelname for record in caplog.records] == ["ERROR"] * bool(path or address)
    if address:
        assert caplog.messages[0].startswith(f"cannot notify systemd at '{address}': ")


# -- a user who stops the command


def test_what_a_user_is_told_who_stops_the_command(wording: SnapshotAssertion) -> None:
    none, one = running_jobs([]), running_jobs(["shop.tasks.ship 12 s"])
    two = running_jobs(["job 7", "job 8"])
    five = running_jobs([f"shop.tasks.{name} 5 s" for name in "abcde"])
    unknown = "the running jobs"
    first = [
        (none, 30.0, signal.SIGINT), (one, 30.0, signal.SIGINT), (five, 2.5, signal.SIGTERM),
        (one, 30.0, signal.SIGHUP), (one, 0.0, signal.SIGTERM), (two, 30.0, None),
        (unknown, 30.0, signal.SIGINT),
    ]  # fmt: skip
    second = [(running, None, None) for running in (none, one, two, unknown)]
    assert "\n".join(stopping(*each) for each in [*first, *second]) == wording
