"""What running jobs tell while they run: how far they are, and the step at which they are.

It is kept in memory, where the last word counts. Once a second a writer takes what has changed
(``producer/reporter.py``), so a task may report its progress as often as it likes. What a job tells
just before it is done is never written.
"""

from __future__ import annotations

import os
from collections import deque
from typing import Any, NamedTuple

from ...formatting import get_logger
from ...jobs.claim import Claimed
from ...jobs.finish import Kind
from ...tasks.progress import Progress, progress_of

logger = get_logger(__name__)

WRITE_EVERY = 1.0  # seconds

#: The outcomes whose last word matters: the job is still there, or its row names the step that failed.
_KEPT = {"retry", "snooze", "wait", "failed"}


class Told(NamedTuple):
    """What a job has told since it was last asked. None: nothing new."""

    id: int
    lease: int
    step: str | None
    progress: Progress | None


class Changed:
    """The jobs of a process that have something to tell.

    Race: many threads add, and a writer takes. A job is unmarked before it is read, and is added again by
    what it tells after that. So nothing is lost, and what is written twice does no harm.
    """

    def __init__(self) -> None:
        self.is_urgent = False  # whether to write it before the next outcomes are reported, which end leases
        self._jobs: deque[ReportedProgress] = deque()
        self._process = os.getpid()

    def __bool__(self) -> bool:
        return bool(self._jobs)

    def add(self, job: ReportedProgress) -> None:
        """Add a job. It is not added again before it was taken."""
        if os.getpid() != self._process:
            logger.warning(
                "job %s: set_progress() was called in a process that the task has forked. Nothing is stored "
                "from there: call it in the process of the task.", job.id,
            )  # fmt: skip
            return
        self._jobs.append(job)

    def take(self) -> list[ReportedProgress]:
        """Return the jobs, and forget them."""
        self.is_urgent = False
        taken = [self._jobs.popleft() for _ in range(len(self._jobs))]
        return [job for job in taken if not job.is_finished]


class ReportedProgress:
    """What one attempt of a job tells. Made on demand, because most jobs tell nothing.

    Race: the task tells while a writer takes. The task only assigns what it tells, and the writer only notes
    what it has taken, so neither can undo the other.
    """

    def __init__(self, row: Claimed, changed: Changed) -> None:
        self.id = row.id
        self.lease = row.lease
        self.is_finished = False  # whether it has ended, and nothing of it needs to be written
        self.last: Progress | None = None  # what it has last told
        self.step = ""  # the one that has begun last, or the wait that it has reached
        self._changed = changed
        self._end: Kind | None = None
        self._is_added = False
        self._is_last = False  # whether what was taken is the last word
        self._taken: tuple[object, str] = None, ""  # of these two, what has been taken

    def tell(self, done: Any, total: Any = None, note: Any = "") -> None:
        """Remember how far the job is. Raise TypeError or ValueError for what cannot be stored."""
        self.last = progress_of(done, total, note)
        if not self._is_added:
            self._add()

    def hear(self, step: str | None, progress: Progress | None) -> None:
        """Remember that a step has begun, or what the job tells in its own process."""
        self.step = step or self.step
        self.last = progress or self.last
        if not self._is_added:
            self._add()

    def wait_at(self, name: str) -> None:
        """Remember that the job waits here, which its row says already."""
        self.step = name
        self._taken = self._taken[0], name

    def take(self) -> Told:
        """Return what is new."""
        self._is_added = False  # first: what is told from here on adds the job again
        self._is_last = self._end is not None
        last, step = self.last, self.step
        (old, old_step), self._taken = self._taken, (last, step)
        return Told(self.id, self.lease, None if step == old_step else step, None if last is old else last)

    def put_back(self, told: Told) -> None:
        """Take back what could not be written, because the row was locked or the connection was lost. What
        was taken after the end of the attempt is dropped: its lease may be over.

        Race: the attempt may end after this was taken and before it is put back. Then its outcome waits.
        """
        if self._is_last:
            return
        last, step = self._taken
        self._taken = (last if told.progress is None else None, step if told.step is None else "")
        if not self._is_added:
            self._add()
        if self._end is not None:
            self._settle(self._end)

    def end(self, kind: Kind) -> None:
        """The attempt is over: what its row must still say is urgent, and the rest is dropped."""
        self._end = kind
        self._settle(kind)

    def _settle(self, kind: Kind) -> None:
        self.is_finished = kind not in _KEPT or (kind == "failed" and self.step == self._taken[1])
        if self._is_added and not self.is_finished:
            self._changed.is_urgent = True

    def _add(self) -> None:
        self._is_added = True
        self._changed.add(self)
