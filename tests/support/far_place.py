"""A network namespace: a machine of its own for the programs in it, whose only cable can be pulled.

Unlike a proxy that goes away, this leaves both ends of a connection half-open: neither hears of it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["FarPlace", "far_place", "lacks_far_place"]


class FarPlace:
    """A network namespace that is connected with this machine, which has the address `here` for it."""

    def __init__(self) -> None:
        number = os.getpid()
        self._name, self._near, self._far = f"pgqueue{number}", f"pgqn{number}", f"pgqf{number}"
        network = f"10.213.{number % 250}"
        self.here = f"{network}.1"
        self.through = ["ip", "netns", "exec", self._name]
        """What starts a program there, with its arguments after it."""
        self.there = f"{network}.2"
        """The address of the programs there."""

    def make(self) -> None:
        _ip("netns", "add", self._name)
        _ip("link", "add", self._near, "type", "veth", "peer", "name", self._far, "netns", self._name)
        _ip("address", "add", f"{self.here}/24", "dev", self._near)
        _ip("-n", self._name, "address", "add", f"{self.there}/24", "dev", self._far)
        for link in ("lo", self._far):
            _ip("-n", self._name, "link", "set", link, "up")
        self.plug()
        # Without this, the system there would soon say that there is no route. Behind a router it never does.
        address = Path(f"/sys/class/net/{self._near}/address").read_text().strip()
        neighbor = (self.here, "lladdr", address, "dev", self._far, "nud", "permanent")
        _ip("-n", self._name, "neighbor", "replace", *neighbor)

    def pull(self) -> None:
        """Pull the cable. Whatever is sent from now on is lost."""
        _ip("link", "set", self._near, "down")

    def plug(self) -> None:
        """Plug the cable in again."""
        _ip("link", "set", self._near, "up")

    def remove(self) -> None:
        """Remove the namespace, and with it both ends of the cable. Programs in it live on without any."""
        _ip("netns", "delete", self._name)


@contextmanager
def far_place() -> Iterator[FarPlace]:
    """Make a network namespace for the block."""
    place = FarPlace()
    try:
        place.make()
        yield place
    finally:
        place.remove()


def lacks_far_place() -> str:
    """Return what this machine lacks for it, or nothing."""
    if shutil.which("ip") is None:
        return "the program ip (iproute2)"
    try:
        with far_place():
            return ""
    except subprocess.CalledProcessError:
        return "the right to make network namespaces"


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)
