"""The jobs that a worker process has started, in memory that its supervisor shares and that outlives it.

A process that was killed cannot say which of its claimed jobs had started, so it writes the id of each job
here when its task starts, and removes it when the outcome is reported. Next to each id is the time at which
the process is to be replaced if the job has not ended by then. The supervisor can do that even if the process
cannot because a task holds its GIL.

    words of the process: flags, and the end of its grace period
    ids: of jobs that have begun, or 0; a word for each seat
    limits: time.monotonic(), or 0; a word for each seat
    threads: in which they run; a word for each seat
    text: the stacks of all threads, if the process crashed, or was asked for them before it was killed

Each value is one aligned word, so a reader never sees half of it. Both processes use the machine's clock.
``faulthandler`` writes the text, also while a task keeps the global interpreter lock.
"""

from __future__ import annotations

import faulthandler
import mmap
import os
import re
import signal
import tempfile
from collections import deque
from pathlib import Path
from threading import get_ident
from typing import Any

#: The signal that asks for the stacks; 0 on systems that have none to spare.
SHOW_STACKS: int = getattr(signal, "SIGRTMIN", -7) + 7
_MOST_TEXT = 2**20  # bytes
_THREAD = re.compile(r"hread 0x([0-9a-f]+)[^\n]*:\n((?:  .*\n)*)")
_FRAME = re.compile(r'  File "(.*)", line (\d+) in (.*)')
_BODY = str(Path(__file__).parent / "executor" / "fork.py")  # calls the bodies of tasks
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
    """Until when the process finishes its jobs (monotonic time, or ``inf``); 0 while it claims jobs."""
    _overflown = _Word(4)

    def __init__(self, file: int) -> None:
        self.file = file  # for a process that inherits it
        view = memoryview(mmap.mmap(file, 0))
        seats = (len(view) // _WORD - _HEAD) // 3
        self._words = view[: _WORD * _HEAD].cast("d")
        ids, limits, threads = (
            view[_WORD * (_HEAD + nth * seats) : _WORD * (_HEAD + (nth + 1) * seats)] for nth in range(3)
        )
        self._ids, self._limits, self._threads = ids.cast("q"), limits.cast("d"), threads.cast("Q")
        self._end = len(view)  # where the text begins
        self._free = deque(range(seats))
        self._seat_of: dict[int, int] = {}

    @classmethod
    def create(cls, slots: int) -> StartedJobs:
        """Create new memory for a process that runs ``slots`` jobs at a time."""
        seats = 4 * max(1_000, slots)  # the most that a producer holds, and jobs that wait to be reported
        if hasattr(os, "memfd_create"):
            file = os.memfd_create("pgqueue")
        else:  # pragma: no cover - not on Linux
            with tempfile.TemporaryFile() as temporary:
                file = os.dup(temporary.fileno())
        os.ftruncate(file, _WORD * (_HEAD + 3 * seats))
        return cls(file)

    @classmethod
    def private(cls, slots: int) -> StartedJobs:
        """Create new memory that is not shared with another process."""
        shared = cls.create(slots)
        shared.close_file()
        return shared

    @classmethod
    def inherited(cls, file: int) -> StartedJobs:
        """Open the memory behind a descriptor that this process has inherited. From now on, the stacks of all
        threads are written there if this process crashes, or gets ``SHOW_STACKS``.
        """
        shared = cls(file)
        os.set_inheritable(file, False)
        os.lseek(file, shared._end, os.SEEK_SET)
        faulthandler.enable(file)
        if SHOW_STACKS:
            faulthandler.register(SHOW_STACKS, file)
        return shared

    def close_file(self) -> None:
        """Close the descriptor. The memory itself lives as long as a process has it mapped."""
        if self.file >= 0:
            os.close(self.file)
            self.file = -1

    def files(self) -> set[int]:
        """Return the descriptor, if it is open. A process that a task forks must not write stacks there."""
        return {self.file} - {-1}

    @property
    def has_text(self) -> bool:
        """Whether the process has written stacks. Of a long text, the end may be missing."""
        return os.fstat(self.file).st_size > self._end

    def stacks(self) -> dict[int, str]:
        """Return by id, like tracebacks, what jobs with a running task did when the stacks were written."""
        text = os.pread(self.file, _MOST_TEXT, self._end).decode("ascii", "backslashreplace")
        threads = {int(ident, 16): _task_frames(lines) for ident, lines in _THREAD.findall(text)}
        jobs = {job: threads.get(self._threads[seat], "") for seat, job in enumerate(self._ids) if job}
        return {job: stack for job, stack in jobs.items() if stack}

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
        self._threads[seat] = get_ident()
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


def _task_frames(lines: str) -> str:
    """Return what ``faulthandler`` wrote of a thread as a traceback: innermost call last, ours left out."""
    frames = [found.groups() for line in lines.splitlines() if (found := _FRAME.fullmatch(line))]
    body = next((place for place, (file, _, _) in enumerate(frames) if file == _BODY), 0)
    return "".join(f'  File "{file}", line {line}, in {name}\n' for file, line, name in frames[:body][::-1])
