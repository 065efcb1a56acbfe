"""The figures of each queue, for the list and the pages of queues. Counts end at a limit, and nothing is
scanned, so they cost as much with a million waiting jobs as with a thousand.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from django.db import connections

from ..queue_names import KEPT_QUEUES, queues_in_use
from ..time_limit import TimeLimitReached, time_limit
from .depth import Depth, depths
from .lost import lost_jobs
from .spans import HOUR, Figures, breakdown
from .trends import Trend, trends

__all__ = ["MOST_FAILURES", "QueueFigures", "one_queue", "queue_figures"]

MOST_FAILURES = 1_000  # count at most this many per queue
MOST_QUEUES = 1_000  # with statistics
PATIENCE = 2.0  # seconds that one statement may take
_FAILURES = KEPT_QUEUES + Path(__file__).with_name("failed_day.sql").read_text(encoding="utf-8")


@dataclass(slots=True)
class QueueFigures:
    """The figures of one queue."""

    depth: Depth
    lost: int = 0
    """Running jobs whose worker is dead, and which wait for recovery."""
    failed_day: int = 0
    """Jobs that failed in the last 24 hours and were not retried, at most ``MOST_FAILURES``."""
    hour: Figures | None = None
    """What ran in the last hour."""
    trend: Trend = field(default_factory=lambda: Trend([], []))
    """The same, step by step."""

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


def queue_figures(alias: str) -> tuple[list[QueueFigures], bool]:
    """Return the queues that are in use or paused, and whether something could not be read in time."""
    try:
        with time_limit(alias, PATIENCE):
            found, lost, failures = depths(alias, queues_in_use(alias)), lost_jobs(alias), _failures(alias)
    except TimeLimitReached:
        return [], True
    queues = {
        name: QueueFigures(depth, lost.get(name, 0), failures.get(name, 0)) for name, depth in found.items()
    }
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
    try:
        with time_limit(alias, PATIENCE):
            found, lost, failures = depths(alias, [name]), lost_jobs(alias), _failures(alias)
    except TimeLimitReached:
        return None
    return QueueFigures(found[name], lost.get(name, 0), failures.get(name, 0))


def _failures(alias: str) -> dict[str, int]:
    with connections[alias].cursor() as cursor:
        cursor.execute(_FAILURES, {"most": MOST_FAILURES})
        return dict(cursor.fetchall())
