"""The figures of each queue, for the list and the pages of queues. Counts end at a limit, and nothing is
scanned, so they cost as much with a million waiting jobs as with a thousand.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

from django.utils.translation import gettext as _

from .. import conf
from ..formatting import about, age, number
from ..models import Pause
from ..models.queue import IN_FORCE, PauseKind
from ..postgres import fetch_rows
from ..postgres.timeout import TimeLimitReached, within
from ..tasks.registry import KEPT_QUEUES, queues_in_use
from .spans import HOUR, Figures, Trend, breakdown, trends

MOST_FAILURES = 1_000  # count at most this many per queue
MOST_QUEUES = 1_000  # with statistics
PATIENCE = 2.0  # seconds that one statement may take
_FAILURES = KEPT_QUEUES + Path(__file__).with_name("failed_day.sql").read_text(encoding="utf-8")


@dataclass(slots=True)
class QueueFigures:
    """The figures of one queue."""

    depth: Depth
    lost: int = 0  # running jobs whose worker is dead, and which wait for recovery
    failed_day: int = 0
    """Jobs that failed in the last 24 hours and were not retried, at most ``MOST_FAILURES``."""
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

    @property
    def needs_workers(self) -> bool:
        """Whether there is work for a worker."""
        return self.depth.needs_workers

    @property
    def failed_text(self) -> str:
        """How many jobs failed, with a plus if there may be more."""
        return number(self.failed_day) + ("+" if self.failed_day >= MOST_FAILURES else "")


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
    except TimeLimitReached:
        return list(queues.values()), True
    return list(queues.values()), False


def one_queue(alias: str, name: str) -> QueueFigures | None:
    """Return how many jobs of a queue wait and run; None if that could not be read in time."""
    found = within(alias, PATIENCE, lambda: _standing(alias, [name]))
    return found[name] if found else None


def _standing(alias: str, names: Iterable[str]) -> dict[str, QueueFigures]:
    """Return how many jobs wait, run, and have failed."""
    found, lost = depths(alias, names), lost_jobs(alias)
    failures = dict(fetch_rows(alias, _FAILURES, {"most": MOST_FAILURES}))
    return {
        name: QueueFigures(depth, lost.get(name, 0), failures.get(name, 0)) for name, depth in found.items()
    }


# The depth and age of each queue, from the leaf of live jobs. One statement counts each kind of jobs up to a
# limit, and asks the planner for an estimate beyond it. So it takes as long with a million waiting jobs as
# with ten thousand.

#: Up to here, the counts are exact.
MOST = 10_000


def capped(count: int) -> str:
    """Return a count in words: exact up to the limit, and the estimate of the planner beyond it."""
    return number(count) if count < MOST else about(count)


_DEPTH_SQL = """
    SELECT queue_name, sum(ready)::bigint, sum(scheduled)::bigint, sum(retrying)::bigint,
        sum(running)::bigint, sum(blocked)::bigint, coalesce(max(oldest_ready), 0),
        coalesce(max(longest_running), 0)
    FROM _pgqueue_depth(%s) GROUP BY queue_name
"""


@dataclass(slots=True)
class Depth:
    """The live jobs of one queue. Counts are exact up to the limit of the call, and estimates beyond it."""

    queue_name: str
    ready: int = 0  # jobs that a worker may claim now
    scheduled: int = 0  # jobs that are not due yet, and have not been attempted
    retrying: int = 0
    """Jobs that have been attempted, and whose next attempt is not due yet: they back off or snooze."""
    running: int = 0
    blocked: int = 0
    """Jobs that wait for their limit key, for other jobs, or until their task is no longer paused."""
    oldest_ready: float = 0.0  # how many seconds the oldest ready job has been due; 0 if there is none
    longest_running: float = 0.0
    """How many seconds the longest running job has been running; 0 if there is none."""
    is_paused: bool = False

    @property
    def needs_workers(self) -> bool:
        """Whether there is work for a worker."""
        return bool(self.ready or self.scheduled or self.retrying or self.running or self.blocked)


def depths(alias: str, names: Iterable[str] = (), most: int = MOST) -> dict[str, Depth]:
    """Return these queues, those with live jobs, and paused ones, jobs counted up to ``most``."""
    found = {name: Depth(name) for name in names}
    found.update((row[0], Depth(*row)) for row in fetch_rows(alias, _DEPTH_SQL, [most]))
    pauses = set(Pause.objects.using(alias).filter(IN_FORCE).values_list("kind", "name"))
    for kind, name in pauses:
        if kind == PauseKind.QUEUE:
            found.setdefault(name, Depth(name)).is_paused = True
    if (PauseKind.ALL, "") in pauses:
        for depth in found.values():
            depth.is_paused = True
    return dict(sorted(found.items()))


_LOST_SQL = Path(__file__).with_name("lost.sql").read_text(encoding="utf-8")


def lost_jobs(alias: str) -> dict[str, int]:
    """Return how many jobs of each queue run by their rows, but on a dead worker, for queues with any."""
    return dict(fetch_rows(alias, _LOST_SQL, {"most": MOST, "lease": conf.current().lease}))


# Who holds a lock of the queue without any right to it. Keys of limits and queues are locked for each claim,
# by advisory locks, which every role that may connect can take. Such a holder breaks no limit, but the jobs
# wait. So health names it, and supervisors log it.

FOREIGN_LOCKS_SQL = Path(__file__).with_name("foreign_locks.sql").read_text(encoding="utf-8")


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
