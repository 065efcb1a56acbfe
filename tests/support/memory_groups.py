"""A memory cgroup: processes that move into it are killed by the system when they use more than its limit.

The group is made below the one of this process, or beside it. With version 2 of cgroups, that needs the
controller ``memory`` there.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .waiting import until

__all__ = ["MemoryGroup", "enter", "lacks_memory_group", "memory_group"]

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
    try:
        with memory_group(2**30):
            return ""
    except OSError:
        return "the right to make memory cgroups"


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
