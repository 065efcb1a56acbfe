"""Telling systemd how the service is: ``Type=notify`` and ``WatchdogSec=``. Elsewhere nothing is said.

The protocol is a line of text in a datagram to the socket that ``NOTIFY_SOCKET`` names; see ``sd_notify(3)``.
"""

from __future__ import annotations

import logging
import os
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import MutableMapping

__all__ = ["ServiceManager"]

logger = logging.getLogger(__name__)

MICROSECONDS = 1_000_000
SEND_TIMEOUT = 1.0  # seconds
PATIENCE = 30.0  # seconds that a try to connect may take besides


class ServiceManager:
    """The one that has started this process, if it wants to be told."""

    def __init__(self, environment: MutableMapping[str, str] = os.environ) -> None:
        """Takes the variables out of ``environment``: what we start must not speak for the service."""
        self._address = environment.pop("NOTIFY_SOCKET", "")
        watchdog = environment.pop("WATCHDOG_USEC", "")
        for_whom = environment.pop("WATCHDOG_PID", "")
        self._interval = float("inf")
        """Seconds between two signs of life: half of what is allowed."""
        microseconds = int(watchdog) if watchdog.isdigit() else 0
        if self._address and microseconds and for_whom in {"", str(os.getpid())}:
            self._interval = microseconds / MICROSECONDS / 2
        self._next_sign = 0.0
        self._status = ""
        self._is_ready = False
        self._has_failed = False

    def ready(self) -> None:
        """The service has started; said once."""
        if not self._is_ready:
            self._is_ready = True
            self._tell("READY=1")

    def not_yet(self, why: str, seconds: float) -> None:
        """The service cannot start, and says so again in ``seconds``, whatever ``TimeoutStartSec=`` says."""
        self.status(why)
        self._tell(f"EXTEND_TIMEOUT_USEC={int((seconds + PATIENCE) * MICROSECONDS)}")

    def stopping(self, seconds: float) -> None:
        """The service stops, and may take so long, whatever ``TimeoutStopSec=`` says."""
        self._tell(f"STOPPING=1\nEXTEND_TIMEOUT_USEC={int(seconds * MICROSECONDS)}")

    def status(self, text: str) -> None:
        """A line for ``systemctl status``, told if it is another one than before."""
        if text != self._status:
            self._status = text
            self._tell(f"STATUS={text}")

    def sign_of_life(self, now: float) -> None:
        """For the watchdog, when it is time."""
        if now >= self.next_sign:
            self._next_sign = now + self._interval
            self._tell("WATCHDOG=1")

    @property
    def next_sign(self) -> float:
        """When the watchdog wants to hear from us; ``inf``: never."""
        return float("inf") if self._interval == float("inf") else self._next_sign

    def _tell(self, message: str) -> None:
        if not self._address:
            return
        # An address that begins with @ lies in no file system: its first byte is 0 on the wire.
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
                line.settimeout(SEND_TIMEOUT)
                line.sendto(message.encode(), address)
        except OSError as error:
            if not self._has_failed:
                self._has_failed = True
                logger.warning("systemd cannot be told %r at %r: %s", message, self._address, error)
