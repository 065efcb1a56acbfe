"""What a worker process has begun, in memory that its supervisor shares and that outlives it.

A process that is killed cannot say which of its claimed jobs had started and which only waited for their
turn. So it writes the id of each job here when its task starts, and takes it away when the outcome is
reported. Its supervisor reads that when it is dead. Beside each id stands the moment when the job's process
is to be replaced if it has not ended by then: the supervisor can see to it even if the process cannot,
because a task holds its GIL.

    flags                                  8 bytes
    ids: of jobs that have begun, or 0     8 bytes a seat
    limits: time.monotonic(), or 0         8 bytes a seat

Each value is one aligned word: no reader sees half of it. The clock is the machine's, the same for both.
"""

from __future__ import annotations

import mmap
import os
from collections import deque

from .memory import new_memory

__all__ = ["StartedJobs"]

_WORD = 8
_CONNECTED, _OVERFLOWN, _REGISTERED = 0, 1, 2


class StartedJobs:
    """Those of one worker process. Its job threads and its producer write here, its supervisor reads."""

    def __init__(self, file: int, seats: int) -> None:
        self.file = file
        """The descriptor of the memory, for a process that inherits it."""
        self._seats = seats
        self._memory = mmap.mmap(file, _size(seats))
        view = memoryview(self._memory)
        self._flags = view[:_WORD]
        self._ids = view[_WORD : _WORD * (1 + seats)].cast("q")
        self._limits = view[_WORD * (1 + seats) :].cast("d")
        self._free = deque(range(seats))
        self._seat_of: dict[int, int] = {}

    @classmethod
    def create(cls, slots: int) -> StartedJobs:
        """New memory, for a process that runs ``slots`` jobs at a time."""
        seats = 4 * max(1_000, slots)  # what a producer holds at most, and what waits to be reported
        file = new_memory("pgqueue-started-jobs")
        os.ftruncate(file, _size(seats))
        return cls(file, seats)

    @classmethod
    def private(cls, slots: int) -> StartedJobs:
        """New memory that nobody else will see."""
        shared = cls.create(slots)
        shared.close_file()
        return shared

    @classmethod
    def inherited(cls, file: int) -> StartedJobs:
        """The memory behind a descriptor that this process has inherited."""
        shared = cls(file, (os.fstat(file).st_size // _WORD - 1) // 2)
        shared.close_file()
        return shared

    def close_file(self) -> None:
        """Let the descriptor go. The memory itself lives as long as somebody has it mapped."""
        os.close(self.file)

    # -- the worker process writes

    def begin(self, job_id: int) -> None:
        """The task of a job is about to start."""
        try:
            seat = self._free.pop()
        except IndexError:
            self._flags[_OVERFLOWN] = 1
            return
        self._seat_of[job_id] = seat
        self._ids[seat] = job_id

    def limit(self, job_id: int, until: float) -> None:
        """If the job runs at ``until`` (monotonic time), its process is to be replaced."""
        seat = self._seat_of.get(job_id)
        if seat is not None:
            self._limits[seat] = until

    def end(self, job_id: int) -> None:
        """The job's outcome is reported, or nobody's business any more."""
        seat = self._seat_of.pop(job_id, None)
        if seat is not None:
            self._ids[seat] = 0
            self._limits[seat] = 0.0
            self._free.append(seat)

    def connect(self, *, holds_lock: bool) -> None:
        """The producer has entered the database."""
        self._flags[_REGISTERED] = 1
        self._flags[_CONNECTED] = holds_lock

    def disconnect(self) -> None:
        """The producer has lost its connection, and its lock with it."""
        self._flags[_CONNECTED] = 0

    # -- the supervisor reads

    @property
    def registered(self) -> bool:
        """Whether the process has ever entered the database."""
        return bool(self._flags[_REGISTERED])

    @property
    def holds_lock(self) -> bool:
        """Whether the producer has a connection that holds its lock, as far as it knows."""
        return bool(self._flags[_CONNECTED])

    def begun(self) -> list[int] | None:
        """The jobs that have begun and are not reported; None if there were too many to note."""
        if self._flags[_OVERFLOWN]:
            return None
        return [job_id for job_id in self._ids if job_id]

    def overdue(self, now: float) -> list[int]:
        """The jobs whose process was to be replaced before ``now`` (monotonic time)."""
        return [self._ids[seat] for seat, until in enumerate(self._limits) if 0 < until < now]


def _size(seats: int) -> int:
    return _WORD * (1 + 2 * seats)
