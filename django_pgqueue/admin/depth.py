"""The figures of all queues, in four statements: live jobs, jobs that ran, jobs that failed, queues with
settings.

None of them reads the ring of history: live jobs are counted in the live leaf, jobs that ran in the
statistics by minute, and failed jobs in the kept leaf with its index.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.db import connections
from django.db.models import Count, DurationField, ExpressionWrapper, Min, Q, Sum
from django.db.models.functions import Now

from ..models import JobStat, LiveJob, Queue
from ..models.job import Status
from ..queue_names import KEPT_QUEUES
from ..vitals import listed

__all__ = ["MOST_FAILURES", "QueueDepth", "depth"]

MOST_FAILURES = 10_000  # count at most this many per queue
_FAILURES = KEPT_QUEUES + (Path(__file__).parent / "failures.sql").read_text(encoding="utf-8")
_LIVE = [status for status in Status if not status.is_terminal]
_READY = Q(status__in=["pending", "retry"], run_after__lte=Now())


@dataclass(slots=True)
class QueueDepth:
    """The figures of one queue. An hour means the last 60 minutes, and a day the last 24 hours."""

    name: str
    pending: int = 0
    retry: int = 0
    running: int = 0
    lost: int = 0
    """Running jobs whose worker is dead or deleted, and which wait for recovery."""
    longest: timedelta | None = None
    """How long the longest running job has been running."""
    blocked: int = 0
    ready: int = 0
    """Jobs that are pending or to retry, and due."""
    oldest: timedelta | None = None
    """How long the oldest of the ready jobs has been due."""
    done_hour: int = 0
    retried_hour: int = 0
    retried_day: int = 0
    failed_hour: int = 0
    """Jobs that failed and were not retried, at most MOST_FAILURES."""
    failed_day: int = 0

    @property
    def waiting(self) -> int:
        """The jobs that a worker has yet to claim, now or later."""
        return self.pending + self.retry + self.blocked

    @property
    def needs_workers(self) -> bool:
        """Whether there is work for a worker."""
        return bool(self.waiting or self.running)


def depth(alias: str) -> list[QueueDepth]:
    """Return every queue that has settings or live jobs, or whose jobs ran or failed within a day."""
    figures: dict[str, dict[str, Any]] = defaultdict(dict)
    for rows in (_live(alias), _recent(alias), _failures(alias)):
        for row in rows:
            figures[row.pop("queue_name")].update(row)
    for name in Queue.objects.using(alias).values_list("pk", flat=True):
        figures.setdefault(name, {})
    return [QueueDepth(name, **figures[name]) for name in sorted(figures)]


def _live(alias: str) -> list[dict[str, Any]]:
    def since(column: str, which: Q) -> Any:
        return ExpressionWrapper(Now() - Min(column, filter=which), output_field=DurationField())

    running = Q(status="running")
    counts: dict[str, Any] = {status.value: Count("pk", filter=Q(status=status.value)) for status in _LIVE}
    rows = LiveJob.objects.using(alias).order_by().values("queue_name")  # type: ignore[attr-defined]
    figures = rows.annotate(
        **counts,
        ready=Count("pk", filter=_READY),
        oldest=since("run_after", _READY),
        # The subquery does not refer to the job, so PostgreSQL reads the workers only once.
        lost=Count("pk", filter=running & ~Q(worker__in=listed().values("pk"))),
        longest=since("last_attempted_at", running),
    )
    return list(figures)


def _recent(alias: str) -> list[dict[str, Any]]:
    hour = Q(minute__gte=Now() - timedelta(hours=1))
    rows = JobStat.objects.using(alias).filter(minute__gte=Now() - timedelta(days=1)).order_by()
    sums: dict[str, Any] = {
        "done_hour": Sum("done", filter=hour, default=0),
        "retried_hour": Sum("retried", filter=hour, default=0),
        "retried_day": Sum("retried", default=0),
    }
    return [dict(row) for row in rows.values("queue_name").annotate(**sums)]


def _failures(alias: str) -> list[dict[str, Any]]:
    with connections[alias].cursor() as cursor:
        cursor.execute(_FAILURES, {"most": MOST_FAILURES})
        rows = cursor.fetchall()
    return [{"queue_name": name, "failed_hour": hour, "failed_day": day} for name, hour, day in rows]
