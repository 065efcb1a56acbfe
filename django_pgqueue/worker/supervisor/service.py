"""Report the state of the service to systemd (``Type=notify``, ``WatchdogSec=``), if systemd has started it.

Each message is a datagram of text to the socket that ``NOTIFY_SOCKET`` names; see ``sd_notify(3)``.
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


MICROSECONDS = 1_000_000
SEND_TIMEOUT = 1.0  # seconds
PATIENCE = 30.0  # additional seconds that an attempt to connect may take


class ServiceManager:
    """The service manager that has started this process, if it wants to be notified."""

    def __init__(self, environment: MutableMapping[str, str] = os.environ) -> None:
        """Remove the variables from ``environment``, so that child processes do not speak for the service."""
        self._address = environment.pop("NOTIFY_SOCKET", "")
        watchdog = environment.pop("WATCHDOG_USEC", "")
        for_whom = environment.pop("WATCHDOG_PID", "")
        self._interval = float("inf")
        """Seconds between two keep-alive messages: half of what the watchdog allows."""
        microseconds = whole_number(watchdog) or 0
        if self._address and microseconds and for_whom in {"", str(os.getpid())}:
            self._interval = microseconds / MICROSECONDS / 2
        self._next_sign = 0.0
        self._status = ""
        self._is_ready = False
        self._has_failed = False

    def ready(self) -> None:
        """Report that the service has started. Sent only once."""
        if not self._is_ready:
            self._is_ready = True
            self._tell("READY=1")

    def not_yet(self, why: str, seconds: float) -> None:
        """Report that the service cannot start yet, and extend ``TimeoutStartSec=`` until the next report,
        which comes in ``seconds``.
        """
        self.status(why)
        self._tell(f"EXTEND_TIMEOUT_USEC={int((seconds + PATIENCE) * MICROSECONDS)}")

    def stopping(self, seconds: float) -> None:
        """Report that the service stops, and extend ``TimeoutStopSec=`` to the seconds that this may take."""
        self._tell(f"STOPPING=1\nEXTEND_TIMEOUT_USEC={int(seconds * MICROSECONDS)}")

    def status(self, text: str) -> None:
        """Set the line that ``systemctl status`` shows. Sent only if it has changed."""
        if text != self._status:
            self._status = text
            self._tell(f"STATUS={text}")

    def sign_of_life(self, now: float) -> None:
        """Send the keep-alive message for the watchdog if it is due."""
        if now >= self.next_sign:
            self._next_sign = now + self._interval
            self._tell("WATCHDOG=1")

    @property
    def next_sign(self) -> float:
        """When the next keep-alive message is due; ``inf`` if the watchdog is off."""
        return float("inf") if self._interval == float("inf") else self._next_sign

    def _tell(self, message: str) -> None:
        if not self._address:
            return
        # An address that begins with @ is an abstract socket: its first byte is sent as 0.
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
                line.settimeout(SEND_TIMEOUT)
                line.sendto(message.encode(), address)
        except OSError as error:
            if not self._has_failed:
                self._has_failed = True
                logger.warning("cannot send %r to systemd at %r: %s", message, self._address, error)


# ----------------------------------------------------------------------------
# A file whose age tells whether the supervisor lives, for the liveness probe of a container.
#
# The supervisor writes it from the loop in which it sends the heartbeats and watches its processes, so a
# supervisor that hangs does not write it. Its text says how many processes work, and whether there is a
# connection. A probe should look at the age only: a restart does not help if the server is away.

EVERY = 5.0  # seconds


class AliveFile:
    """The file at a path; without a path, nothing is written."""

    def __init__(self, path: str) -> None:
        self._path = Path(path) if path else None
        self._next_sign = 0.0
        self._has_failed = False

    @property
    def next_sign(self) -> float:
        """When the file must be written next; ``inf`` without one."""
        return self._next_sign if self._path else float("inf")

    def sign(self, now: float, text: str) -> None:
        """Write the file if it is time."""
        if self._path is None or now < self._next_sign:
            return
        self._next_sign = now + EVERY
        # Renamed, so that a probe never reads an empty file.
        beside = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        try:
            beside.write_text(f"{text}\n", encoding="utf-8")
            beside.replace(self._path)
            self._has_failed = False
        except OSError as error:
            if not self._has_failed:
                self._has_failed = True
                logger.error("cannot write the file that shows that the worker lives: %s", error)

    def remove(self) -> None:
        """Remove the file, because the supervisor ends."""
        if self._path is None:
            return
        try:
            self._path.unlink(missing_ok=True)
        except OSError as error:
            logger.warning("cannot remove %s: %s", self._path, error)
