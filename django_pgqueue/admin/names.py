"""The names of queues and tasks for filters, without reading any history."""

from __future__ import annotations

from pathlib import Path

from django.db import connections

from ..definition import declared_tasks
from ..queue_names import WINDOW, queues_in_use

__all__ = ["queue_names", "task_paths"]

_TASKS = (Path(__file__).parent / "tasks.sql").read_text(encoding="utf-8")


def queue_names(alias: str) -> list[str]:
    """The queues that the overview lists."""
    return sorted(queues_in_use(alias))


def task_paths(alias: str) -> list[str]:
    """Tasks that this process knows, with live jobs, or that ran within a day.

    No index leads from task to task. Only the ends of a backlog that is longer than twice ``WINDOW`` are
    read, so a task may be missing that nobody has run and that this process does not know.
    """
    with connections[alias].cursor() as cursor:
        cursor.execute(_TASKS, {"window": WINDOW})
        found = {path for (path,) in cursor.fetchall()}
    return sorted(found | {task.module_path for task in declared_tasks()})
