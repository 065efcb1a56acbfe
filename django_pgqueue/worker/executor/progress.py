"""What running jobs report while they run: how far they are, and the step at which they are.

It is kept in memory, where the last word counts. Once a second a writer takes what has changed, so a task
may report its progress as often as it likes. What a job reports just before it is done is never written.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from time import monotonic
from typing import Any

import psycopg

from ...formatting import get_logger
from ...jobs.claim import Claimed
from ...jobs.finish import Kind
from ...postgres import sql_of
from ...postgres.arrays import number_array, text_array
from ...postgres.session import Session
from ...tasks.progress import Progress, progress_of

logger = get_logger(__name__)

WRITE_EVERY = 1.0  # seconds

#: The outcomes whose last word matters: the job is still there, or its row names the step that failed.
_KEPT = {"retry", "snooze", "wait", "failed"}

WRITE_SQL = sql_of(__file__, "progress")


class ProgressWriter:
    """Writes what the running jobs of a process report, at most once a second, in one statement.

    Race: many threads add, and a writer takes. A job is unmarked before it is read, and is added again by
    what it reports after that, so nothing is lost, and what is written twice does no harm.
    """

    def __init__(self) -> None:
        self.is_urgent = False  # whether to write it before the next outcomes are reported, which end leases
        self._jobs: deque[ReportedProgress] = deque()
        self._process = os.getpid()
        self._wrote = 0.0

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
        taken: list[ReportedProgress] = []
        with suppress(IndexError):  # Race: in one-process mode, two threads write.
            for _ in range(len(self._jobs)):
                job = self._jobs.popleft()
                if not job.is_finished:
                    taken.append(job)
        return taken

    def seconds_left(self, now: float) -> float:
        """Return the seconds until there is something to write."""
        if not self._jobs:
            return float("inf")
        return 0.0 if self.is_urgent else max(0.0, self._wrote + WRITE_EVERY - now)

    def write_if_due(self, session: Session, now: float) -> None:
        """Write what has changed, if a second has passed, or if an outcome must not be reported before."""
        if not self.seconds_left(now):
            self.write(session)

    def write(self, session: Session) -> None:
        """Write what has changed. A locked row is written later, while its job runs; a refused one is not."""
        self._wrote = monotonic()
        jobs = self.take()
        if not jobs:
            return
        steps, progress = zip(*[job.take() for job in jobs], strict=True)
        parameters = (
            number_array([job.id for job in jobs]),
            number_array([job.lease for job in jobs]),
            text_array(steps),
            number_array([each and each.done for each in progress]),
            number_array([each and each.total for each in progress]),
            text_array([each and each.note for each in progress]),
        )
        later = {job.id for job in jobs}
        try:
            written: Iterable[int] = later
            with session.aside("the progress of jobs"):
                written = session.value(WRITE_SQL, parameters)
            later.difference_update(written)
        except psycopg.errors.LockNotAvailable:
            # A task has written its own progress in SQL, in a transaction that is still open.
            logger.info("the progress of %d jobs is written later: a row is locked", len(jobs))
        finally:
            for job in jobs:
                if job.id in later:
                    job.put_back()


class ReportedProgress:
    """What one attempt of a job reports. Made on demand, because most jobs report nothing.

    Race: the task reports while a writer takes. The task only assigns its report, and the writer only notes
    what it has taken, so neither can undo the other.
    """

    def __init__(self, row: Claimed, writer: ProgressWriter) -> None:
        self.id = row.id
        self.lease = row.lease
        self.is_finished = False  # whether it has ended, and nothing of it needs to be written
        self.last: Progress | None = None  # what it has last reported
        self.step = ""  # the one that has begun last, or the wait that it has reached
        self._writer = writer
        self._end: Kind | None = None
        self._is_added = False
        self._is_last = False  # whether what was taken is the last word
        # What has been taken of these two, and what was taken the time before.
        self._taken: tuple[Progress | None, str] = None, ""
        self._taken_before: tuple[Progress | None, str] = None, ""

    def report(self, done: Any, total: Any = None, note: Any = "") -> None:
        """Remember how far the job is. Raise TypeError or ValueError for what cannot be stored."""
        self.last = progress_of(done, total, note)
        self._add()

    def hear(self, step: str | None, progress: Progress | None) -> None:
        """Remember that a step has begun, or what the job reports in its own process."""
        self.step = step or self.step
        self.last = progress or self.last
        self._add()

    def wait_at(self, name: str) -> None:
        """Remember that the job waits here, which its row says already."""
        self.step = name
        self._taken = self._taken[0], name

    def take(self) -> tuple[str | None, Progress | None]:
        """Return the step and the progress; None if they are not new."""
        self._is_added = False  # first: what is reported from here on adds the job again
        self._is_last = self._end is not None
        last, step = self.last, self.step
        self._taken_before, self._taken = self._taken, (last, step)
        old, old_step = self._taken_before
        return None if step == old_step else step, None if last is old else last

    def put_back(self) -> None:
        """Take back what was taken last and could not be written: the row was locked, or the connection lost.
        What was taken after the end of the attempt is dropped: its lease may have ended.

        Race: the attempt may end after this was taken and before it is put back. Then its outcome waits.
        """
        if self._is_last:
            return
        self._taken = self._taken_before
        self._add()
        if self._end is not None:
            self._settle(self._end)

    def end(self, kind: Kind) -> None:
        """The attempt has ended: what its row must still say is urgent, and the rest is dropped."""
        self._end = kind
        self._settle(kind)

    def _settle(self, kind: Kind) -> None:
        self.is_finished = kind not in _KEPT or (kind == "failed" and self.step == self._taken[1])
        if self._is_added and not self.is_finished:
            self._writer.is_urgent = True

    def _add(self) -> None:
        if not self._is_added:
            self._is_added = True
            self._writer.add(self)
