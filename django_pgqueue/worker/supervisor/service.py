"""Show that the supervisor lives, and what it does: to systemd, and in a file for a liveness probe.

systemd (``Type=notify``, ``WatchdogSec=``) reads datagrams of text on the socket that ``NOTIFY_SOCKET``
names; see ``sd_notify(3)``. The probe of a container looks at the age of the file, not at its text: a restart
does not help if the server is away.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from ...encoding import whole_number
from ...formatting import get_logger

if TYPE_CHECKING:
    from collections.abc import MutableMapping

logger = get_logger(__name__)

WRITE_EVERY = 5.0  # seconds
MICROSECONDS = 1_000_000
SEND_TIMEOUT = 1.0  # seconds
PATIENCE = 30.0  # additional seconds that an attempt to connect may take
_NEVER = float("inf")


class Service:
    """Written from the loop of the supervisor, so one that hangs shows no sign of life."""

    def __init__(self, alive_file: str = "", environment: MutableMapping[str, str] = os.environ) -> None:
        """Remove the variables from ``environment``, so that child processes do not speak for the service."""
        self._address = environment.pop("NOTIFY_SOCKET", "")
        microseconds = whole_number(environment.pop("WATCHDOG_USEC", "")) or 0
        is_for_us = environment.pop("WATCHDOG_PID", "") in {"", str(os.getpid())}
        has_watchdog = bool(self._address and microseconds and is_for_us)
        self._path = Path(alive_file) if alive_file else None
        self._interval = microseconds / MICROSECONDS / 2
        self._next_signal = 0.0 if has_watchdog else _NEVER
        self._next_write = 0.0 if alive_file else _NEVER
        self._status = ""
        self._is_ready = False
        self._failures: set[str] = set()

    @property
    def next_sign(self) -> float:
        """When ``sign`` must be called next."""
        return min(self._next_signal, self._next_write)

    def sign(self, now: float, status: str) -> None:
        """Show what the supervisor does, and that it lives, where it is time."""
        if status != self._status:
            self._status = status
            self._notify(f"STATUS={status}")
        if now >= self._next_signal:
            self._next_signal = now + self._interval
            self._notify("WATCHDOG=1")
        if now >= self._next_write:
            self._next_write = now + WRITE_EVERY
            self._write(status)

    def ready(self) -> None:
        """Report once that the service has started."""
        if not self._is_ready:
            self._is_ready = True
            self._notify("READY=1")

    def starting(self, seconds: float) -> None:
        """Extend ``TimeoutStartSec=`` until the next call, which comes in ``seconds``."""
        self._notify(_extended(seconds + PATIENCE))

    def stopping(self, seconds: float) -> None:
        """Report that the service stops, and extend ``TimeoutStopSec=`` to the seconds that this may take."""
        self._notify(f"STOPPING=1\n{_extended(seconds)}")

    def end(self) -> None:
        """Remove the file."""
        if self._path is not None:
            try:
                self._path.unlink(missing_ok=True)
            except OSError as error:
                self._failed(f"cannot remove {self._path}", error)

    def _write(self, text: str) -> None:
        assert self._path is not None
        # Renamed, so that a probe never reads an empty file.
        beside = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        try:
            beside.write_text(f"{text}\n", encoding="utf-8")
            beside.replace(self._path)
        except OSError as error:
            self._failed("cannot write the file that shows that the worker lives", error)

    def _notify(self, message: str) -> None:
        if not self._address:
            return
        # An address that begins with @ is an abstract socket: its first byte is sent as 0.
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
                line.settimeout(SEND_TIMEOUT)
                line.sendto(message.encode(), address)
        except OSError as error:
            self._failed(f"cannot notify systemd at {self._address!r}", error)

    def _failed(self, what: str, error: OSError) -> None:
        if what not in self._failures:
            self._failures.add(what)
            logger.error("%s: %s", what, error)


def _extended(seconds: float) -> str:
    return f"EXTEND_TIMEOUT_USEC={int(seconds * MICROSECONDS)}"
