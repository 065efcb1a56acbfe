"""The jobs that a worker process has started, in memory that its supervisor shares and that outlives it.

A process that was killed cannot say which of its claimed jobs had started. So it writes the id of each job
here when its task starts, and removes it when the outcome is reported. Next to each id is the time at which
the process is to be replaced if the job has not ended by then. The supervisor can do that even if the process
cannot because a task holds its GIL.

    words of the process: flags, and the end of its grace period
    ids: of jobs that have begun, or 0; a word for each seat
    limits: time.monotonic(), or 0; a word for each seat

Each value is one aligned word, so a reader never sees half of it. Both processes use the machine's clock.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections import deque
from typing import Any

_WORD = 8  # bytes
_HEAD = 5  # words


class _Word:
    """An attribute that is kept in a word of the memory: a flag or a time."""

    def __init__(self, place: int) -> None:
        self._place = place

    def __get__(self, jobs: StartedJobs, owner: type[StartedJobs]) -> Any:
        return jobs._words[self._place]

    def __set__(self, jobs: StartedJobs, value: float) -> None:
        jobs._words[self._place] = value


class StartedJobs:
    """The started jobs of a worker process. Its job threads and producer write, and its supervisor reads."""

    is_set_up = _Word(0)
    """Whether the process has loaded the project: from then on, it says in its log what it waits for."""
    registered = _Word(1)  # whether the process has ever registered in the database
    holds_lock = _Word(2)  # whether the producer has a connection that holds its lock, as far as it knows
    drains_until = _Word(3)
    """Until when the process finishes its jobs (monotonic time), ``inf`` without a limit; 0 as long as it
    claims jobs.
    """
    _overflown = _Word(4)

    def __init__(self, file: int) -> None:
        self.file = file  # for a process that inherits it
        view = memoryview(mmap.mmap(file, 0))
        seats = (len(view) // _WORD - _HEAD) // 2
        self._words = view[: _WORD * _HEAD].cast("d")
        self._ids = view[_WORD * _HEAD : _WORD * (_HEAD + seats)].cast("q")
        self._limits = view[_WORD * (_HEAD + seats) :].cast("d")
        self._free = deque(range(seats))
        self._seat_of: dict[int, int] = {}

    @classmethod
    def create(cls, slots: int) -> StartedJobs:
        """Create new memory for a process that runs ``slots`` jobs at a time."""
        seats = 4 * max(1_000, slots)  # the most that a producer holds, and those that wait to be reported
        if hasattr(os, "memfd_create"):
            file = os.memfd_create("pgqueue")
        else:  # pragma: no cover - not on Linux
            with tempfile.TemporaryFile() as temporary:
                file = os.dup(temporary.fileno())
        os.ftruncate(file, _WORD * (_HEAD + 2 * seats))
        return cls(file)

    @classmethod
    def private(cls, slots: int) -> StartedJobs:
        """Create new memory that is not shared with another process."""
        return cls.inherited(cls.create(slots).file)

    @classmethod
    def inherited(cls, file: int) -> StartedJobs:
        """Open the memory behind a descriptor that this process has inherited."""
        shared = cls(file)
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
            self._overflown = True
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

    def begun(self) -> list[int] | None:
        """Return the jobs that have begun and are not reported; None if there were too many to note."""
        if self._overflown:
            return None
        return [job_id for job_id in self._ids if job_id]

    def overdue(self, now: float) -> list[int]:
        """Return the jobs whose process was to be replaced before ``now`` (monotonic time)."""
        return [self._ids[seat] for seat, until in enumerate(self._limits) if 0 < until < now]
