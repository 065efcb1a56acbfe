"""Make faults, and record in the ledger when they happened and whom they hit."""

from __future__ import annotations

import os
import signal
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.waiting import until

from .accounts import Fault
from .ledger import FAULT, Ledger

__all__ = ["Havoc", "descendants", "is_gone"]


class Havoc:
    """Makes faults. `faults` are those that it has made, and not those that tasks make in their process."""

    def __init__(self, ledger: Ledger) -> None:
        self.faults: list[Fault] = []
        self._ledger = ledger

    @contextmanager
    def fault(
        self,
        kind: str,
        pids: Iterable[int] | None = None,
        *,
        is_supervisor: bool = False,
        explains: bool = True,
    ) -> Iterator[None]:
        """Record that what the block does is a fault. It is recorded even if the block fails."""
        hit = None if pids is None else frozenset(pids)
        before = time.monotonic()
        try:
            yield
        finally:
            fault = Fault(kind, before, time.monotonic(), hit, is_supervisor, explains)
            self.faults.append(fault)
            self._ledger.write(
                FAULT, kind=kind, before=fault.before, after=fault.after, is_supervisor=is_supervisor,
                pids=None if hit is None else sorted(hit), explains=explains,
            )  # fmt: skip

    def kill(self, *pids: int, kind: str = "killed process", is_supervisor: bool = False) -> None:
        """Kill processes, and wait until they and the processes that they have started are dead.

        The system kills the children when the parent dies, so they live a few milliseconds longer.
        """
        everybody = set(pids).union(*map(descendants, pids))
        with self.fault(kind, everybody, is_supervisor=is_supervisor):
            for pid in pids:
                _signal(pid, signal.SIGKILL)
            until(lambda: all(map(is_gone, everybody)), what="no process is left behind")

    @contextmanager
    def stopped(self, pid: int, *, kind: str = "stopped process", explains: bool = True) -> Iterator[None]:
        """Stop a process, and let it continue at the end of the block."""
        with self.fault(kind, {pid}, explains=explains):
            _signal(pid, signal.SIGSTOP)
            try:
                yield
            finally:
                _signal(pid, signal.SIGCONT)


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


def is_gone(pid: int) -> bool:
    """Return whether there is no such process, or only a zombie of it."""
    return (_fields(pid) or ["X"])[0] in "XZ"


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:  # it has died with its parent
        return


def _parents() -> Iterator[tuple[int, int]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := _fields(int(entry.name))):
            yield int(entry.name), int(fields[1])


def _fields(pid: int) -> list[str]:
    """Return the fields of ``/proc/<pid>/stat`` after the name, which may contain any character."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:  # it has ended
        return []
