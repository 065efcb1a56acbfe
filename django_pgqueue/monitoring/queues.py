"""The figures of each queue, for the list and the pages of queues. Counts end at a limit, and nothing is
scanned, so they cost as much with a million waiting jobs as with a thousand.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from threading import Lock
from time import monotonic
from typing import NamedTuple

from django.db import connections
from django.utils.translation import gettext as _

from .. import conf
from ..formatting import age, number
from ..models.job import Status
from ..postgres import fetch_rows, sql_of
from ..postgres.timeout import TimeLimitReached, within
from ..tasks.registry import KEPT_QUEUES, queues_in_use
from .depth import MOST, Counted, Depth, depths
from .spans import HOUR, WEEK, Figures, Trend, breakdown, percentile, rates, span_rows, span_sql, trends

MOST_QUEUES = 1_000  # with statistics
PATIENCE = 2.0  # seconds that one statement may take
_FAILURES = KEPT_QUEUES + sql_of(__file__, "failed_day")


class FailedJobs(NamedTuple):
    """How many jobs have failed and were not retried, counted up to ``MOST``."""

    hour: int = 0  # in the last hour
    before: int = 0  # in the hour before
    day: int = 0  # in the last 24 hours


_NONE_FAILED = FailedJobs()


@dataclass(slots=True)
class QueueFigures:
    """The figures of one queue."""

    depth: Depth
    lost: int = 0  # running jobs whose worker is dead, and which wait for recovery
    failed: FailedJobs = _NONE_FAILED
    rate: float = 0.0  # how many attempts end a second now
    hour: Figures | None = None  # what ran in the last hour
    trend: Trend = field(default_factory=lambda: Trend([], []))  # the same, step by step

    @property
    def name(self) -> str:
        """Its name."""
        return self.depth.queue_name

    @property
    def oldest(self) -> timedelta | None:
        """How long the oldest of the ready jobs has been due."""
        return timedelta(seconds=self.depth.oldest_ready) if self.depth.ready else None


def queue_figures(alias: str) -> tuple[list[QueueFigures], bool]:
    """Return the queues that are in use or paused, and whether something could not be read in time."""
    queues = within(alias, PATIENCE, lambda: _standing(alias, queues_in_use(alias)))
    if queues is None:
        return [], True
    try:
        for row in breakdown(alias, HOUR, "queue", most=MOST_QUEUES):
            if row.queue_name in queues:
                queues[row.queue_name].hour = row
        for name, trend in trends(alias, HOUR, "queue", queues).items():
            queues[name].trend = trend
        for name, rate in rates(alias).items():
            if name in queues:
                queues[name].rate = rate
    except TimeLimitReached:
        return list(queues.values()), True
    return list(queues.values()), False


def one_queue(alias: str, name: str) -> QueueFigures | None:
    """Return how many jobs of a queue wait and run; None if that could not be read in time."""
    found = within(alias, PATIENCE, lambda: _standing(alias, [name]))
    return found[name] if found else None


def _standing(alias: str, names: Iterable[str]) -> dict[str, QueueFigures]:
    """Return how many jobs wait, run, and have failed."""
    found, lost, failed = depths(alias, names), lost_jobs(alias), failed_jobs(alias)
    return {
        name: QueueFigures(depth, lost.get(name, 0), failed.get(name, _NONE_FAILED))
        for name, depth in found.items()
    }


def failed_jobs(alias: str) -> dict[str, FailedJobs]:
    """Return the counts of each queue that has had any in the last day."""
    rows = fetch_rows(alias, _FAILURES, {"most": MOST + 1})
    return {name: FailedJobs(*counts) for name, *counts in rows}


_LOST_SQL = sql_of(__file__, "lost")


def lost_jobs(alias: str) -> dict[str, int]:
    """Return how many jobs of each queue run by their rows, but on a dead worker, for queues with any."""
    return dict(fetch_rows(alias, _LOST_SQL, {"most": MOST, "lease": conf.current().lease}))


# Who holds a lock of the queue without any right to it. Keys of limits and queues are locked for each claim,
# by advisory locks, which every role that may connect can take. Such a holder breaks no limit, but the jobs
# wait, so health names it, and supervisors log it.

FOREIGN_LOCKS_SQL = sql_of(__file__, "foreign_locks")


class Holder(NamedTuple):
    """A session that holds such a lock."""

    pid: int  # the process of the server, for ``pg_terminate_backend()``
    role: str
    since: timedelta | None
    """How long its transaction, or else its session, has lasted. None if this role may not see that."""

    def __str__(self) -> str:
        about = {"role": self.role, "pid": self.pid}
        if self.since is None:
            return _("%(role)s (process %(pid)d) holds a lock of the queue without a right to it") % about
        return _(
            "%(role)s (process %(pid)d) holds a lock of the queue without a right to it, for %(age)s at most"
        ) % {**about, "age": age(self.since.total_seconds())}


def foreign_locks(alias: str) -> list[Holder]:
    """Return the sessions that hold one, the oldest first."""
    return [Holder(*row) for row in fetch_rows(alias, FOREIGN_LOCKS_SQL)]


# Schedules that skip run after run, and jobs far longer than usual for their task; queues may look healthy.

_SKIPPING = sql_of(__file__, "skipping")
_SLOW = span_sql("parts", "slow")
LEAST_SKIPS = 3  # in a row
LEAST_SECONDS = 60.0  # of a slow job
TIMES_P95 = 3  # so many times as long as 95% of the attempts
LEAST_ATTEMPTS = 20  # of a task in the last seven days; fewer say nothing about the next one
MOST_SLOW = 5


class Skipping(NamedTuple):
    """A schedule whose last runs were all skipped."""

    schedule: str
    skips: int  # in a row, counted up to ``MOST``
    job_id: int | None  # the job that was in the way of the last one

    def __str__(self) -> str:
        text = _("%(schedule)s: its last %(count)s runs were skipped")
        if self.job_id is not None:
            text = _("%(schedule)s: its last %(count)s runs were skipped, the latest because of job %(job)d")
        return text % {"schedule": self.schedule, "count": number(self.skips), "job": self.job_id}


class SlowJob(NamedTuple):
    """A running job that takes far longer than the jobs of its task did in the last seven days."""

    task_path: str
    job_id: int
    seconds: float  # how long the attempt has run so far
    p95: float  # the seconds that 95% of the attempts did not exceed

    def __str__(self) -> str:
        text = _("Job %(job)d of %(task)s has run for %(age)s; 95%% of its attempts end within %(usual)s")
        times = {"age": age(self.seconds), "usual": age(self.p95)}
        return text % {"job": self.job_id, "task": self.task_path, **times}


def skipping_schedules(alias: str) -> list[Skipping]:
    """Return the active schedules that have skipped `LEAST_SKIPS` runs in a row or more."""
    rows = fetch_rows(alias, _SKIPPING, {"least": LEAST_SKIPS, "most": MOST})
    return [Skipping(*row) for row in rows]


def slow_jobs(alias: str) -> list[SlowJob]:
    """Return the slowest running job of each task that has one, the slowest first, at most `MOST_SLOW`.

    Raises ``TimeLimitReached``.
    """
    found = []
    rows = span_rows(alias, _SLOW, WEEK, least=LEAST_SECONDS, most=MOST)
    for task_path, job_id, seconds, histogram in rows:
        p95 = percentile(histogram, 0.95) or 0.0
        if sum(histogram) >= LEAST_ATTEMPTS and seconds > TIMES_P95 * p95:
            found.append(SlowJob(task_path, job_id, seconds, p95))
    return sorted(found, key=lambda job: job.p95 / job.seconds)[:MOST_SLOW]


# How many jobs are in each state, for the list of jobs. The history is never counted. Each state is counted
# up to ``MOST``, and the ring of history is read up to as many jobs, so this takes as long with ten million
# jobs as with ten thousand. All who look at a list within a few seconds share one reading.

COUNT_PATIENCE = 0.5  # seconds that one statement may take
SHARED_FOR = 5.0  # seconds

_LIVE, _RING, _KEPT = (sql_of(__file__, f"states_{name}") for name in ("live", "ring", "kept"))
_KEPT = KEPT_QUEUES + _KEPT
#: An index is read no further than needed, and a bitmap would read it to its end.
_PLANS = "SET LOCAL enable_seqscan TO off; SET LOCAL enable_bitmapscan TO off"
Counts = dict[str, Counted]


def state_counts(alias: str) -> Counts:
    """Return the counts by status. A status that could not be counted in time is missing."""
    found = within(alias, COUNT_PATIENCE, lambda: _read(alias, _LIVE)) or {}
    ring = within(alias, COUNT_PATIENCE, lambda: _ring(alias))
    kept = within(alias, COUNT_PATIENCE, lambda: _read(alias, _KEPT))
    if kept is not None:
        found[Status.FAILED.value] = kept[Status.FAILED.value]  # there are none in the ring
        if ring is not None:
            found.update({status: Counted.sum([ring[status], kept[status]]) for status in ring})
    return found


_lock = Lock()
_shared: dict[str, tuple[float, Counts]] = {}


def shared_counts(alias: str) -> Counts:
    """Return the counts that all viewers in this process share for some seconds.

    Race: they get old for several threads at once. One of them reads, and the others wait for it.
    """
    with _lock:
        until, counts = _shared.get(alias, (0.0, {}))
        if monotonic() >= until:
            counts = state_counts(alias)
            _shared[alias] = monotonic() + SHARED_FOR, counts
        return counts


def _ring(alias: str) -> Counts:
    """Count the jobs in the ring of history, where no failed jobs are."""
    found = dict.fromkeys((Status.DONE.value, Status.CANCELLED.value), Counted(0)) | _read(alias, _RING)
    total = Counted.sum(found.values())
    is_exact = total.is_exact and total.number <= MOST
    return {status: Counted(count.number, is_exact) for status, count in found.items()}


def _read(alias: str, statement: str) -> Counts:
    """Return what a statement has counted; one more than ``MOST`` says that there are more."""
    with connections[alias].cursor() as cursor:
        cursor.execute(_PLANS)
    rows = fetch_rows(alias, statement, {"most": MOST + 1})
    return {status: Counted(min(count, MOST), count <= MOST) for status, count in rows if count is not None}
