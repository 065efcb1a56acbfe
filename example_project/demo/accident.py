"""Kill a worker process in the middle of the run, and observe what happens to its jobs.

A process that holds no jobs is not killed, and another one is tried later.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import partial

from django.db.models import Count, QuerySet

from django_pgqueue.models import Job
from example_project.search.tasks import LIVE

from .children import Child
from .display import duration
from .killing import kill_if, now, processes_of

MIDDLE = (0.25, 0.75)  # the share of the finished jobs
# A job that is given back runs after the other waiting jobs of its priority. There should be few of them at
# the kill, or the measured time would mostly be that of other jobs. At the end of MIDDLE, the kill happens
# anyway.
SHORT_LINE = 100  # jobs


@dataclass(frozen=True, slots=True)
class Toll:
    """How long the `jobs` that a kill hit were delayed, in seconds from the kill to the last of these jobs.

    `back` is the time until they were back in the queue. `again` is the time until another process had
    started them, after the jobs that were waiting before them.
    """

    jobs: int
    back: float
    again: float

    def __str__(self) -> str:
        whose = "its job" if self.jobs == 1 else f"its {self.jobs:,} jobs"
        back = duration(self.back)
        return f"worker killed: {whose} ran again after {self.again:.1f} s (back after {back})"


class Accident:
    """Kills one process of `child` while `jobs` (`total` of them) run."""

    def __init__(self, child: Child, jobs: QuerySet[Job], total: int) -> None:
        self._child = child
        self._jobs = jobs
        self._total = total
        self._hit: list[int] = []
        self._victim = 0
        self._killed_at: datetime | None = None
        self._back_at: datetime | None = None

    @property
    def has_happened(self) -> bool:
        """Whether a process was killed."""
        return self._killed_at is not None

    def look(self) -> None:
        """Kill a process if it is time to do so, or look whether its jobs are back in the queue."""
        if self._back_at is not None:
            return
        if self.has_happened:
            self._see_whether_back()
        elif self._is_time():
            self._kill_one()

    def toll(self) -> Toll | None:
        """Return the delay of the jobs, or None until a process was killed and all jobs that it held are
        over.
        """
        if self.has_happened and self._back_at is None:
            self._see_whether_back()
        if self._killed_at is None or self._back_at is None:
            return None
        hit = list(Job.objects.filter(pk__in=self._hit).only("status", "last_attempted_at"))
        if any(job.status in LIVE for job in hit):
            return None
        starts = [job.last_attempted_at for job in hit if job.last_attempted_at is not None]
        return Toll(
            jobs=len(hit),
            back=(self._back_at - self._killed_at).total_seconds(),
            again=(max(starts) - self._killed_at).total_seconds(),
        )

    def _is_time(self) -> bool:
        left = self._jobs.filter(status__in=LIVE).values_list("priority").annotate(Count("pk"))
        lines = [count for _, count in left.order_by("-priority")]
        over = 1 - sum(lines) / self._total
        (start, end) = MIDDLE
        return bool(lines) and over >= start and (over >= end or lines[0] <= SHORT_LINE)

    def _see_whether_back(self) -> None:
        """Note the time when the dead process no longer holds any of these jobs."""
        held = self._jobs.filter(pk__in=self._hit, status=Job.Status.RUNNING, worker=self._victim)
        if not held.exists():
            self._back_at = now()

    def _kill_one(self) -> None:
        for worker in processes_of(self._child):
            self._killed_at = kill_if(worker, partial(self._holds_jobs, worker.pk))
            if self.has_happened:
                self._victim = worker.pk
                return

    def _holds_jobs(self, worker: int) -> bool:
        held = self._jobs.filter(status=Job.Status.RUNNING, worker=worker)
        self._hit = list(held.values_list("pk", flat=True))
        return bool(self._hit)
