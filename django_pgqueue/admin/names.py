"""The names of queues and tasks for filters, without reading any history."""

from __future__ import annotations

from datetime import timedelta

from django.db import connections
from django.db.models.functions import Now

from ..definition import declared_tasks
from ..models import JobStat, Queue

__all__ = ["queue_names", "task_paths"]


def queue_names(alias: str) -> list[str]:
    """Queues with settings, with jobs that wait, or with jobs that ran within a day."""
    with connections[alias].cursor() as cursor:
        # One probe of the index for each queue.
        cursor.execute("SELECT pgqueue_queues_between_v1('', NULL, NULL)")
        waiting = {name for (name,) in cursor.fetchall()}
    configured = set(Queue.objects.using(alias).values_list("pk", flat=True))
    return sorted(waiting | configured | _recent(alias, "queue_name"))


def task_paths(alias: str) -> list[str]:
    """Tasks that this process knows, or that ran within a day."""
    return sorted(_recent(alias, "task_path") | {task.module_path for task in declared_tasks()})


def _recent(alias: str, column: str) -> set[str]:
    recent = JobStat.objects.using(alias).filter(minute__gte=Now() - timedelta(days=1))
    return set(recent.order_by().values_list(column, flat=True).distinct())
