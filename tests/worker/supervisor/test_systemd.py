"""The protocol of systemd: addresses, the intervals of the watchdog, and errors."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator

import pytest

from django_pgqueue.worker.supervisor.supervisor import Service


@pytest.fixture
def receiver() -> Iterator[socket.socket]:
    """A socket in the abstract name space, with an address that the kernel has chosen."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind("")
        receiver.setblocking(False)
        yield receiver


def address_of(receiver: socket.socket) -> str:
    name: bytes = receiver.getsockname()
    return "@" + name[1:].decode()


def heard(receiver: socket.socket) -> list[str]:
    messages = []
    while True:
        try:
            messages.append(receiver.recv(4096).decode())
        except BlockingIOError:
            return messages


def test_an_abstract_address_and_what_is_said_once(receiver: socket.socket) -> None:
    manager = Service(environment={"NOTIFY_SOCKET": address_of(receiver)})
    for _ in range(2):
        manager.ready()
        manager.sign(1.0, "fine")
    manager.sign(2.0, "not so fine")
    manager.stopping(1.5)
    assert heard(receiver) == [
        "READY=1", "STATUS=fine", "STATUS=not so fine", "STOPPING=1\nEXTEND_TIMEOUT_USEC=1500000",
    ]  # fmt: skip


def test_a_service_that_cannot_start_yet_asks_for_more_time(receiver: socket.socket) -> None:
    manager = Service(environment={"NOTIFY_SOCKET": address_of(receiver)})
    manager.starting(5.0)
    manager.starting(5.0)
    more = "EXTEND_TIMEOUT_USEC=35000000"
    assert heard(receiver) == [more, more]


def test_the_watchdog_hears_from_us_at_half_its_interval(receiver: socket.socket) -> None:
    variables = {
        "NOTIFY_SOCKET": address_of(receiver), "WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid()),
    }  # fmt: skip
    manager = Service(environment=variables)
    assert variables == {}
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
    manager = Service(
        environment={"NOTIFY_SOCKET": address_of(receiver), "WATCHDOG_USEC": "1000000", **variables}
    )
    manager.sign(100.0, "")
    assert heard(receiver) == []
    assert manager.next_sign == float("inf")


@pytest.mark.parametrize("address", ["/nowhere/at/all", "vsock:2:1234", "@" + 200 * "x"])
def test_a_manager_that_cannot_be_told_is_complained_about_once(
    address: str, caplog: pytest.LogCaptureFixture
) -> None:
    manager = Service(environment={"NOTIFY_SOCKET": address})
    with caplog.at_level(logging.WARNING):
        manager.ready()
        manager.sign(1.0, "fine")
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith(f"cannot notify systemd at '{address}': ")


def test_without_systemd_nothing_is_said(caplog: pytest.LogCaptureFixture) -> None:
    manager = Service(environment={"WATCHDOG_USEC": "1000000"})
    manager.ready()
    manager.sign(1.0, "fine")
    assert manager.next_sign == float("inf")
    assert caplog.messages == []
