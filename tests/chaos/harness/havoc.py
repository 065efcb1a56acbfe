"""Make faults, and record in the ledger when they happened and whom they hit."""

from __future__ import annotations

import os
import signal
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from tests.support.commands import Command, is_alive, parents
from tests.support.waiting import until

from .ledger import Fault, Ledger


class Havoc:
    """Makes faults, other than those that tasks make in their process."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    @contextmanager
    def fault(
        self, kind: str, pids: Iterable[int] | None = None, *, is_supervisor: bool = False,
        explains: bool = True,
    ) -> Iterator[None]:  # fmt: skip
        """Record that what the block does is a fault. It is recorded even if the block fails."""
        hit = None if pids is None else frozenset(pids)
        before = time.monotonic()
        try:
            yield
        finally:
            self._ledger.write_fault(Fault(kind, before, time.monotonic(), hit, is_supervisor, explains))

    def kill(self, *pids: int, kind: str = "killed process", is_supervisor: bool = False) -> None:
        """Kill processes, and wait until they and the processes that they have started are dead.

        The system kills the children when the parent dies, so they live a few milliseconds longer.
        """
        everybody = set(pids).union(*map(descendants, pids))
        with self.fault(kind, everybody, is_supervisor=is_supervisor):
            for pid in pids:
                with suppress(ProcessLookupError):  # it has died with its parent
                    os.kill(pid, signal.SIGKILL)
            until(lambda: not any(map(is_alive, everybody)), what="no process is left behind")


def end(command: Command) -> None:
    """Tell a command to end, and wait until it has ended without an error."""
    command.send(signal.SIGTERM)
    assert command.wait() == 0, command.log


def processes_of(command: Command) -> set[int]:
    """Return the processes of a command."""
    return {command.process.pid, *descendants(command.process.pid)}


def descendants(pid: int) -> set[int]:
    """Return the children of a process, their children, and so on."""
    children = defaultdict(list)
    for child, parent in parents().items():
        children[parent].append(child)
    found: set[int] = set()
    ahead = [pid]
    while ahead:
        below = children[ahead.pop()]
        found.update(below)
        ahead += below
    return found
