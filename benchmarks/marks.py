"""A small shared file in which every job leaves a mark, whichever queue runs it.

A benchmark measures all queues in the same way: the first job to start begins the time, and the number of
jobs that have run is read from memory, not from tables that the queue is working on. A mark costs about half
a microsecond. The file is mapped into the memory of each worker process, which writes to a slot of its own:

    slot    number of jobs, time of the first one, time of the last one (CLOCK_MONOTONIC, the same everywhere)
    stamps  after the slots: for each job with a number, when it started

Jobs find the file by the environment variable BENCHMARK_MARKS.
"""

from __future__ import annotations

import asyncio
import fcntl
import mmap
import os
import struct
import threading
import time
from pathlib import Path

__all__ = ["LENGTH", "STAMPS", "Marks", "a_wait", "mark", "stamp", "wait"]

VARIABLE = "BENCHMARK_MARKS"
#: The variable that says how many milliseconds a job of the kind ``wait`` waits.
LENGTH = "BENCHMARK_LENGTH"
SLOTS = 128
STAMPS = 20_000
_SLOT = struct.Struct("=Qdd")
_STAMP = struct.Struct("=d")
_HEAD = struct.Struct("=Q")  # the number of slots in use
_FIRST_STAMP = _HEAD.size + SLOTS * _SLOT.size
_SIZE = _FIRST_STAMP + STAMPS * _STAMP.size


class Marks:
    """The marks as the benchmark reads them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.write_bytes(bytes(_SIZE))
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), _SIZE)

    def reset(self) -> None:
        """Forget everything. No worker may be running."""
        self._memory[:] = bytes(_SIZE)

    def count(self) -> int:
        """Return the number of jobs that have run."""
        return sum(count for count, _, _ in self._slots())

    def first(self) -> float:
        """Return when the first job started."""
        return min(first for count, first, _ in self._slots() if count)

    def last(self) -> float:
        """Return when the last job so far ended."""
        return max(last for count, _, last in self._slots() if count)

    def stamps(self, jobs: int) -> list[float]:
        """Return when each of the first ``jobs`` numbered jobs started."""
        end = _FIRST_STAMP + jobs * _STAMP.size
        return [at for (at,) in _STAMP.iter_unpack(self._memory[_FIRST_STAMP:end])]

    def _slots(self) -> list[tuple[int, float, float]]:
        return list(_SLOT.iter_unpack(self._memory[_HEAD.size : _FIRST_STAMP]))


class _Slot:
    """The slot of this process. Job threads share it, so a lock guards its counter."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._memory: mmap.mmap | None = None
        self._offset = 0
        self._count = 0
        self._first = 0.0

    def forget(self) -> None:
        """Take another slot at the next mark: this process has just been forked."""
        self.__init__()  # type: ignore[misc]

    def mark(self) -> None:
        with self._lock:
            memory = self._memory or self._open()
            now = time.monotonic()
            self._first = self._first or now
            self._count += 1
            _SLOT.pack_into(memory, self._offset, self._count, self._first, now)

    def stamp(self, number: int) -> None:
        now = time.monotonic()
        with self._lock:
            _STAMP.pack_into(self._memory or self._open(), _FIRST_STAMP + number * _STAMP.size, now)

    def _open(self) -> mmap.mmap:
        with Path(os.environ[VARIABLE]).open("r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            memory = mmap.mmap(file.fileno(), _SIZE)
            (used,) = _HEAD.unpack_from(memory)
            if used == SLOTS:
                raise RuntimeError(f"more than {SLOTS} processes have left marks in one run")
            _HEAD.pack_into(memory, 0, used + 1)
            fcntl.flock(file, fcntl.LOCK_UN)  # the mapping keeps a copy of the file open, and so the lock
        self._memory, self._offset = memory, _HEAD.size + used * _SLOT.size
        return memory


_slot = _Slot()
os.register_at_fork(after_in_child=_slot.forget)


def mark() -> None:
    """Count one job. A job calls this when it has done its work."""
    _slot.mark()


def stamp(number: int) -> None:
    """Record that the job with this number starts now."""
    _slot.stamp(number)


def wait() -> None:
    """Wait as long as the benchmark says, as for a network, and count one job."""
    time.sleep(_seconds())
    mark()


async def a_wait() -> None:
    """Wait on the event loop as long as the benchmark says, and count one job."""
    await asyncio.sleep(_seconds())
    mark()


def _seconds() -> float:
    return float(os.environ[LENGTH]) / 1e3
