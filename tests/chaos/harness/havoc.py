"""Make faults, and record in the ledger when they happened and whom they hit."""

from __future__ import annotations

import os
import signal
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from tests.support.commands import is_alive, parents
from tests.support.waiting import until

from .ledger import FAULT, Fault, Ledger


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
            until(lambda: not any(map(is_alive, everybody)), what="no process is left behind")

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
    for child, parent in parents().items():
        children[parent].append(child)
    found: set[int] = set()
    ahead = [pid]
    while ahead:
        below = children[ahead.pop()]
        found.update(below)
        ahead += below
    return found


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):  # it has died with its parent
        os.kill(pid, number)
