"""Kill a worker process in the middle of the run, and observe what happens to its jobs.

The process is stopped (SIGSTOP) while its jobs are counted, because otherwise it would finish some of them
between the count and the SIGKILL. A process that holds no jobs is continued, and another one is tried later.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from django.db import connection
from django.db.models import Count, QuerySet

from django_pgqueue.models import Job, Worker
from example_project.search.tasks import LIVE

from .children import Child
from .display import duration

MIDDLE = (0.25, 0.75)  # the share of the jobs that are over
# A job that is given back runs after the other waiting jobs of its priority. There should be few of them at
# the kill, or the measured time would mostly be that of other jobs. At the end of MIDDLE, the kill happens
# anyway.
SHORT_LINE = 100  # jobs
LOOK_EVERY = 0.02  # seconds
STILLNESS = 1.0  # maximum seconds until the server has executed the last statement of a stopped process


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
        return f"worker killed: {whose} ran again after {self.again:.1f} s (back in the queue after {back})"


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

    def pass_time(self, seconds: float) -> None:
        """Wait, and meanwhile kill a process if it is time to do so."""
        end = time.monotonic() + seconds
        while self._back_at is None and time.monotonic() < end:
            if self.has_happened:
                self._see_whether_back()
            elif self._is_time():
                self._kill_one()
            time.sleep(LOOK_EVERY)
        time.sleep(max(0.0, end - time.monotonic()))

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
            self._back_at = _now()

    def _kill_one(self) -> None:
        for worker in Worker.objects.filter(host=socket.gethostname()[:255]):
            # The database may have other workers, which are not ours to kill.
            if self._child.started(worker.pid) and self._kill(worker):
                return

    def _kill(self, worker: Worker) -> bool:
        """Kill the process if it holds jobs. Return whether it was killed."""
        with suppress(ProcessLookupError):  # the process has just ended
            os.kill(worker.pid, signal.SIGSTOP)
            try:
                _wait_for_stillness()
                self._hit = list(
                    self._jobs.filter(status=Job.Status.RUNNING, worker=worker.pk).values_list(
                        "pk", flat=True
                    )
                )
                if self._hit:
                    self._victim = worker.pk
                    self._killed_at = _now()
                    os.kill(worker.pid, signal.SIGKILL)
            finally:
                if not self.has_happened:
                    os.kill(worker.pid, signal.SIGCONT)
        return self.has_happened


def _wait_for_stillness() -> None:
    """Return when the server has executed every statement that was sent before this call.

    Race: a process may be stopped between a claim or a report and the server's answer.
    """
    stopped_at = _now()
    deadline = time.monotonic() + STILLNESS
    while time.monotonic() < deadline:
        time.sleep(LOOK_EVERY)
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database()"
                " AND state = 'active' AND pid <> pg_backend_pid() AND query_start <= %s)",
                [stopped_at],
            )
            (is_still,) = cursor.fetchone()
        if is_still:
            return


def _now() -> datetime:
    """Return the time of the database's clock, which all times of jobs come from."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        (now,) = cursor.fetchone()
    return now  # type: ignore[no-any-return]
