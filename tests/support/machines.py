"""What a machine may lack, for programs in it: its network, space on its disk, memory, or the right time.

A network namespace has a cable that can be pulled. Unlike a proxy that goes away, this leaves both ends of a
connection half-open: neither hears of it. A small disk is a file system in memory (tmpfs) in place of a
folder; only root may mount it. Processes that move into a memory cgroup are killed by the system when they
use more than its limit; version 2 of cgroups needs the controller ``memory`` in the group of this process, or
above it. libfaketime makes the wall clock of a command wrong, but not the monotonic clock, which waits and
timeouts use.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from .waiting import until


def _lacks(what: str, context: AbstractContextManager[Any]) -> str:
    """Return what is missing if the context cannot be entered."""
    try:
        with context:
            return ""
    except (OSError, subprocess.CalledProcessError):
        return what


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
    return _lacks("the right to make network namespaces", far_place())


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


MEGABYTE = 2**20


class SmallDisk:
    """A file system of some megabytes, mounted at a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ballast = folder / "ballast"

    def fill(self) -> None:
        """Leave no space."""
        with self._ballast.open("ab", buffering=0) as ballast:
            for size in (MEGABYTE, 4096):
                try:
                    while True:
                        ballast.write(bytes(size))
                except OSError:
                    continue

    def free(self) -> None:
        """Undo that."""
        self._ballast.unlink()


@contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[SmallDisk]:
    """Put the files of the folder on a small disk for the block. Nobody may have them open then."""
    status = folder.stat()
    with tempfile.TemporaryDirectory(dir=folder.parent) as aside:
        subprocess.run(["cp", "-a", f"{folder}/.", aside], check=True)
        mount = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=700", "tmpfs", str(folder)]
        subprocess.run(mount, check=True, capture_output=True)
        try:
            os.chown(folder, status.st_uid, status.st_gid)
            subprocess.run(["cp", "-a", f"{aside}/.", str(folder)], check=True)
            shutil.rmtree(aside)
            yield SmallDisk(folder)
        finally:
            subprocess.run(["umount", str(folder)], check=True, capture_output=True)


def lacks_small_disks() -> str:
    """Return what this machine lacks for it, or nothing."""
    if sys.platform != "linux":
        return "tmpfs"
    with tempfile.TemporaryDirectory() as folder:
        return _lacks("the right to mount a tmpfs", small_disk(Path(folder), 1))


ROOT = Path("/sys/fs/cgroup")
_LIMITS = {
    "memory.max": ("memory.max", "memory.swap.max", "memory.events"),  # version 2
    "memory.limit_in_bytes": ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "memory.oom_control"),
}


class MemoryGroup:
    """A group of processes that together may use so many bytes. Swap does not help them."""

    def __init__(self, folder: Path, limit: int) -> None:
        self.folder = folder
        name = next(name for name in _LIMITS if (folder / name).exists())
        memory, swap, self._events = _LIMITS[name]
        (folder / memory).write_text(str(limit))
        if (folder / swap).exists():
            (folder / swap).write_text("0" if swap == "memory.swap.max" else str(limit))

    @property
    def killed(self) -> int:
        """How many of its processes the system has killed."""
        found = re.search(r"^oom_kill (\d+)$", (self.folder / self._events).read_text(), re.MULTILINE)
        return int(found[1]) if found else 0


@contextmanager
def memory_group(limit: int) -> Iterator[MemoryGroup]:
    """Make a group for the block. Its processes must have ended when the block ends, or end soon."""
    folder = _make()
    try:
        yield MemoryGroup(folder, limit)
    finally:
        until(lambda: _is_removed(folder), what="all processes of the group have ended")


def enter(folder: str | Path) -> None:
    """Move this process into the group. What it has in memory already does not count there."""
    (Path(folder) / "cgroup.procs").write_text(str(os.getpid()))


def lacks_memory_group() -> str:
    """Return what this machine lacks for it, or nothing."""
    return _lacks("the right to make memory cgroups", memory_group(2**30))


def _make() -> Path:
    for own in _own():
        for parent in dict.fromkeys((own, own.parent)):
            folder = parent / f"pgqueue-{uuid.uuid4().hex}"
            try:
                folder.mkdir()
            except OSError:
                continue
            if any((folder / name).exists() for name in _LIMITS):
                return folder
            folder.rmdir()  # the controller is not there
    raise PermissionError("no memory cgroup can be made")


def _own() -> Iterator[Path]:
    """Yield the groups of this process that may have the controller."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            yield ROOT / "memory" / path.lstrip("/")
        elif not controllers:
            yield ROOT / path.lstrip("/")


def _is_removed(folder: Path) -> bool:
    try:
        folder.rmdir()
    except OSError:
        return not folder.exists()
    return True


class Clock:
    """The wall clock of the processes that are started with the variables `env`."""

    def __init__(self, file: Path, seconds: float = 0.0) -> None:
        self._file = file
        self.set(seconds)
        self.env = {
            "LD_PRELOAD": str(_library()),
            "FAKETIME_TIMESTAMP_FILE": str(file),
            "FAKETIME_NO_CACHE": "1",  # so that a step is seen at once
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }

    def set(self, seconds: float) -> None:
        """Let the clock be wrong by so many seconds from now on: ahead, or behind if they are negative."""
        new = self._file.with_suffix(".new")
        new.write_text(f"{seconds:+.0f}\n")
        new.replace(self._file)  # nobody reads half of it


def lacks_faketime() -> str:
    """Return the name of the library if it is missing."""
    return "" if _library() else "libfaketime (python3 dev.py chaos installs it)"


def _library() -> Path | None:
    """Return the library of the package. It is not imported, because that would change this process."""
    found = find_spec("libfaketime")
    if found is None or found.origin is None:
        return None
    path = Path(found.origin).parent / "vendor" / "libfaketime" / "src" / "libfaketime.so.1"
    return path if path.exists() else None
