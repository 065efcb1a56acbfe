"""The jobs that a worker process has started, in memory that its supervisor shares and that outlives it.

A process that was killed cannot say which of its claimed jobs had started. So it writes the id of each job
here when its task starts, and removes it when the outcome is reported. Next to each id is the time at which
the process is to be replaced if the job has not ended by then. The supervisor can do that even if the process
cannot because a task holds its GIL.

    flags                                  8 bytes
    end: time.monotonic(), or 0            8 bytes
    ids: of jobs that have begun, or 0     8 bytes for each seat
    limits: time.monotonic(), or 0         8 bytes for each seat

Each value is one aligned word, so a reader never sees half of it. Both processes use the machine's clock.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections import deque

_WORD = 8
_CONNECTED, _OVERFLOWN, _REGISTERED, _SET_UP = 0, 1, 2, 3


class StartedJobs:
    """The started jobs of a worker process. Its job threads and producer write, and its supervisor reads."""

    def __init__(self, file: int, seats: int) -> None:
        self.file = file  # for a process that inherits it
        view = memoryview(mmap.mmap(file, _size(seats)))
        self._flags = view[:_WORD]
        self._end = view[_WORD : 2 * _WORD].cast("d")
        self._ids = view[2 * _WORD : _WORD * (2 + seats)].cast("q")
        self._limits = view[_WORD * (2 + seats) :].cast("d")
        self._free = deque(range(seats))
        self._seat_of: dict[int, int] = {}

    @classmethod
    def create(cls, slots: int) -> StartedJobs:
        """Create new memory for a process that runs ``slots`` jobs at a time."""
        seats = 4 * max(1_000, slots)  # the most that a producer holds, and those that wait to be reported
        file = _new_memory()
        os.ftruncate(file, _size(seats))
        return cls(file, seats)

    @classmethod
    def private(cls, slots: int) -> StartedJobs:
        """Create new memory that is not shared with another process."""
        return cls.inherited(cls.create(slots).file)

    @classmethod
    def inherited(cls, file: int) -> StartedJobs:
        """Open the memory behind a descriptor that this process has inherited."""
        shared = cls(file, (os.fstat(file).st_size // _WORD - 2) // 2)
        shared.close_file()
        return shared

    def close_file(self) -> None:
        """Close the descriptor. The memory itself lives as long as a process has it mapped."""
        os.close(self.file)

    @property
    def count(self) -> int:
        """How many jobs this process has noted."""
        return len(self._seat_of)

    def begin(self, job_id: int) -> None:
        """Note that the task of a job is about to start."""
        try:
            seat = self._free.pop()
        except IndexError:
            self._flags[_OVERFLOWN] = 1
            return
        self._seat_of[job_id] = seat
        self._ids[seat] = job_id

    def limit(self, job_id: int, until: float) -> None:
        """Note that the process is to be replaced if the job still runs at ``until`` (monotonic time)."""
        seat = self._seat_of.get(job_id)
        if seat is not None:
            self._limits[seat] = until

    def end(self, job_id: int) -> None:
        """Note that the job's outcome is reported, or does not matter any more."""
        seat = self._seat_of.pop(job_id, None)
        if seat is not None:
            self._ids[seat] = 0
            self._limits[seat] = 0.0
            self._free.append(seat)

    def set_up(self) -> None:
        """Note that the project is loaded: from now on, the process says in its log what it waits for."""
        self._flags[_SET_UP] = 1

    def connect(self, *, holds_lock: bool) -> None:
        """Note that the producer has connected and registered."""
        self._flags[_REGISTERED] = 1
        self._flags[_CONNECTED] = holds_lock

    def drain(self, end: float) -> None:
        """Note that the process claims no more jobs, and ends at ``end`` at the latest (monotonic time)."""
        self._end[0] = end

    def disconnect(self) -> None:
        """Note that the producer has lost its connection, and its lock with it."""
        self._flags[_CONNECTED] = 0

    @property
    def is_set_up(self) -> bool:
        """Whether the process has loaded the project."""
        return bool(self._flags[_SET_UP])

    @property
    def drains_until(self) -> float:
        """The time of ``drain``, ``inf`` without a limit; 0 as long as the process claims jobs."""
        return self._end[0]

    @property
    def registered(self) -> bool:
        """Whether the process has ever registered in the database."""
        return bool(self._flags[_REGISTERED])

    @property
    def holds_lock(self) -> bool:
        """Whether the producer has a connection that holds its lock, as far as it knows."""
        return bool(self._flags[_CONNECTED])

    def begun(self) -> list[int] | None:
        """Return the jobs that have begun and are not reported; None if there were too many to note."""
        if self._flags[_OVERFLOWN]:
            return None
        return [job_id for job_id in self._ids if job_id]

    def overdue(self, now: float) -> list[int]:
        """Return the jobs whose process was to be replaced before ``now`` (monotonic time)."""
        return [self._ids[seat] for seat, until in enumerate(self._limits) if 0 < until < now]


def _size(seats: int) -> int:
    return _WORD * (2 + 2 * seats)


def _new_memory() -> int:
    """Return a descriptor of empty memory that a child process may inherit. It is no file in a directory."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("pgqueue")
    with tempfile.TemporaryFile() as temporary:  # pragma: no cover - not on Linux
        return os.dup(temporary.fileno())


def write_memory(text: str) -> int:
    """Return a descriptor of new memory that contains a text. Unlike a pipe, it takes any length at once."""
    file = _new_memory()
    with os.fdopen(os.dup(file), "w", encoding="utf-8") as memory:
        memory.write(text)
    return file


def read_memory(file: int) -> str:
    """Return the text behind an inherited descriptor, and close it."""
    with os.fdopen(file, encoding="utf-8") as memory:
        memory.seek(0)
        return memory.read()
