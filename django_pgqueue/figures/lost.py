"""Running jobs that are lost: their worker is dead or deleted, and they wait for recovery by another one."""

from __future__ import annotations

from django.db.models import Count

from ..models import LiveJob
from ..vitals import listed

__all__ = ["lost"]


def lost(alias: str) -> dict[str, int]:
    """Return how many there are, by queue. Only running jobs are read, from their index."""
    running = LiveJob.objects.using(alias).filter(status="running").order_by()  # type: ignore[attr-defined]
    # The subquery does not refer to the job, so PostgreSQL reads the workers only once.
    rows = running.exclude(worker__in=listed().values("pk"))
    return dict(rows.values_list("queue_name").annotate(count=Count("pk")))
