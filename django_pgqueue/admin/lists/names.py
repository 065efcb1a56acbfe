"""The names of queues and tasks for filters, found without reading the history."""

from __future__ import annotations

from pathlib import Path

from django.db import connections

from ...discovery import known_tasks
from ...queue_names import WINDOW, queues_in_use

__all__ = ["queue_names", "task_paths"]

_TASKS = (Path(__file__).parent / "tasks.sql").read_text(encoding="utf-8")


def queue_names(alias: str) -> list[str]:
    """Return the queues that the overview shows."""
    return sorted(queues_in_use(alias))


def task_paths(alias: str) -> list[str]:
    """Return the tasks that this process can find, that have live jobs, or that ran within a day.

    There is no index on the task. Only both ends of a backlog that is longer than twice ``WINDOW`` are read,
    so a task that has not run yet, and that this process cannot find, may be missing.
    """
    with connections[alias].cursor() as cursor:
        cursor.execute(_TASKS, {"window": WINDOW})
        found = {path for (path,) in cursor.fetchall()}
    return sorted(found | set(known_tasks()))
