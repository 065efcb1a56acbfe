"""Under systemd, the supervisor notifies the service manager on a real socket."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from django_pgqueue.models import Worker
from tests.support.commands import SLOW, Command
from tests.support.workers import until


class Manager:
    """The socket of the service manager."""

    def __init__(self, address: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(address)
        self.socket.settimeout(SLOW)

    def hears(self, beginning: str) -> str:
        """Wait for a message with this prefix."""
        return until(lambda: self._next(beginning), seconds=SLOW, what=beginning)

    def _next(self, beginning: str) -> str:
        message = self.socket.recv(4096).decode()
        return message if message.startswith(beginning) else ""


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    manager = Manager(str(tmp_path / "notify"))
    with manager.socket:
        yield manager


def test_it_tells_systemd_how_it_is(start: Callable[..., Command], manager: Manager, tmp_path: Path) -> None:
    address, alive = str(tmp_path / "notify"), tmp_path / "alive"
    environment = {"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "1000000"}
    command = start("--processes", "2", "--alive-file", str(alive), env=environment)
    manager.hears("STATUS=0 of 2 processes at work")
    manager.hears("READY=1")
    workers = list(Worker.objects.all())
    assert len(workers) == 2
    manager.hears("STATUS=2 of 2 processes at work")
    manager.hears("WATCHDOG=1")
    assert alive.read_text().endswith(" of 2 processes at work\n")
    for worker in workers:
        inherited = Path(f"/proc/{worker.pid}/environ").read_bytes()
        assert b"NOTIFY_SOCKET" not in inherited
        assert b"WATCHDOG_USEC" not in inherited
    os.kill(workers[0].pid, signal.SIGKILL)
    manager.hears("STATUS=1 of 2 processes at work")
    manager.hears("STATUS=2 of 2 processes at work")
    command.send(signal.SIGTERM)
    # The grace of 30 s plus a margin.
    assert manager.hears("STOPPING=1") == "STOPPING=1\nEXTEND_TIMEOUT_USEC=40000000"
    until(lambda: not alive.exists(), seconds=SLOW, what="the end of the file that shows that it lives")
    assert command.wait() == 0, command.log
