"""Kill processes."""

from __future__ import annotations

import os
import signal
import time
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from .ledger import Kill
from .workers import until

__all__ = ["Havoc", "descendants"]


class Havoc:
    """Kills processes and keeps a list of the kills."""

    def __init__(self) -> None:
        self.kills: list[Kill] = []

    def kill(self, pid: int, *, is_supervisor: bool = False) -> None:
        """Kill a process, and wait until it and the processes that it has started are dead.

        The system kills the children when the parent dies, so they live a few milliseconds longer.
        """
        pids = frozenset({pid, *descendants(pid)})
        before = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        until(lambda: not any(_state(each) not in "XZ" for each in pids), what="no process is left behind")
        self.kills.append(Kill(before, time.monotonic(), pids, is_supervisor))


def descendants(pid: int) -> set[int]:
    """Return the children of a process, their children, and so on."""
    children = defaultdict(list)
    for child, parent in _parents():
        children[parent].append(child)
    found: set[int] = set()
    ahead = [pid]
    while ahead:
        below = children[ahead.pop()]
        found.update(below)
        ahead += below
    return found


def _parents() -> Iterable[tuple[int, int]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := _fields(int(entry.name))):
            yield int(entry.name), int(fields[1])


def _state(pid: int) -> str:
    """Return the letter of the process's state, or X if there is no such process."""
    return (_fields(pid) or ["X"])[0]


def _fields(pid: int) -> list[str]:
    """Return the fields of ``/proc/<pid>/stat`` after the name, which may contain any character."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:  # it has ended
        return []
