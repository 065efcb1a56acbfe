"""A worker process killed in the middle of the run, and what became of its jobs.

The process is frozen (SIGSTOP) for the moment in which its jobs are counted: it would finish some of them
between the count and the SIGKILL. One that holds none goes on, and the next one is tried a moment later.
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

MIDDLE = (0.25, 0.75)  # of the jobs are over
# A job that is given back goes to the end of the line of its priority. The line should be short at the kill,
# or the figure would be of other jobs; but it need not be, once the middle is almost past.
SHORT_LINE = 100  # jobs
LOOK_EVERY = 0.02  # seconds
STILLNESS = 1.0  # seconds at most until the server has answered what a frozen process had asked for


@dataclass(frozen=True, slots=True)
class Toll:
    """What a kill has cost the `jobs` that it hit; in seconds from the kill, each of the last of them.

    `back`: given back to the queue. `again`: started by another process, after those before it in the line.
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
        """Let time pass, and kill a process in it if the moment has come."""
        end = time.monotonic() + seconds
        while self._back_at is None and time.monotonic() < end:
            if self.has_happened:
                self._see_whether_back()
            elif self._is_time():
                self._kill_one()
            time.sleep(LOOK_EVERY)
        time.sleep(max(0.0, end - time.monotonic()))

    def toll(self) -> Toll | None:
        """What it has cost; None before it has happened, and until all jobs that it hit are over."""
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
        """Note the time when the dead process holds none of them any more."""
        held = self._jobs.filter(pk__in=self._hit, status=Job.Status.RUNNING, worker=self._victim)
        if not held.exists():
            self._back_at = _now()

    def _kill_one(self) -> None:
        for worker in Worker.objects.filter(host=socket.gethostname()[:255]):
            # Other workers of the same database are none of ours.
            if self._child.started(worker.pid) and self._kill(worker):
                return

    def _kill(self, worker: Worker) -> bool:
        """Kill the process if it holds jobs; whether it did."""
        with suppress(ProcessLookupError):  # it ended just now
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
    """Return when the server has done everything that was asked of it before this call.

    Race: a process may be frozen between a claim, or a report, and its answer.
    """
    frozen_at = _now()
    deadline = time.monotonic() + STILLNESS
    while time.monotonic() < deadline:
        time.sleep(LOOK_EVERY)
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database()"
                " AND state = 'active' AND pid <> pg_backend_pid() AND query_start <= %s)",
                [frozen_at],
            )
            (is_still,) = cursor.fetchone()
        if is_still:
            return


def _now() -> datetime:
    """By the clock of the database, as all times of jobs are."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        (now,) = cursor.fetchone()
    return now  # type: ignore[no-any-return]
