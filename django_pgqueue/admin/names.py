"""The names of queues and tasks for filters, without reading any history."""

from __future__ import annotations

from pathlib import Path

from django.db import connections

from ..definition import declared_tasks

__all__ = ["queue_names", "task_paths"]

WINDOW = 5_000  # jobs read at each end of the backlog
_QUEUES = (Path(__file__).parent / "queues.sql").read_text(encoding="utf-8")
_TASKS = (Path(__file__).parent / "tasks.sql").read_text(encoding="utf-8")


def queue_names(alias: str) -> list[str]:
    """The queues that the overview lists: with settings, with live jobs, with failed jobs that are kept, or
    where jobs ran within a day.
    """
    return sorted(_names(alias, _QUEUES))


def task_paths(alias: str) -> list[str]:
    """Tasks that this process knows, with live jobs, or that ran within a day.

    No index leads from task to task. Only the ends of a backlog that is longer than twice ``WINDOW`` are
    read, so a task may be missing that nobody has run and that this process does not know.
    """
    return sorted(_names(alias, _TASKS) | {task.module_path for task in declared_tasks()})


def _names(alias: str, statement: str) -> set[str]:
    with connections[alias].cursor() as cursor:
        cursor.execute(statement, {"window": WINDOW})
        return {name for (name,) in cursor.fetchall()}
