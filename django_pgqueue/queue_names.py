"""Find the names of queues: those in tasks and settings, and those that the database contains.

Nothing here reads the history of jobs.
"""

from __future__ import annotations

from pathlib import Path

from django.core.exceptions import ImproperlyConfigured
from django.db import connections

from .discovery import known_tasks
from .routing import our_aliases, resolve

__all__ = ["KEPT_QUEUES", "WINDOW", "declared_queues", "queues_in_use"]

WINDOW = 5_000  # jobs to read at each end of the backlog, to find queues whose jobs are all blocked

#: Statements that read ``FROM kept``, the queues with kept jobs, begin with this.
KEPT_QUEUES = Path(__file__).with_name("kept_queues.sql").read_text(encoding="utf-8")
_IN_USE = KEPT_QUEUES + Path(__file__).with_suffix(".sql").read_text(encoding="utf-8")


def queues_in_use(alias: str) -> set[str]:
    """Return the queues that have settings, live jobs or kept failed jobs, or that ran jobs within a day."""
    with connections[alias].cursor() as cursor:
        cursor.execute(_IN_USE, {"window": WINDOW})
        return {name for (name,) in cursor.fetchall()}


def declared_queues() -> set[str]:
    """Return the queues of the tasks of all apps, and those of QUEUES in TASKS."""
    found = {task.queue_name for task in known_tasks().values()}
    for alias in our_aliases():
        try:
            found.update(resolve(alias).queues)
        except ImproperlyConfigured:  # a system check reports this
            continue
    return found
