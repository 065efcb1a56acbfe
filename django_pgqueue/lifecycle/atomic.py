"""Atomic tasks: the body and the finish of the job are one transaction, so the effect happens exactly once.

This is true only for what the body writes on the connection of its job. So the job of an atomic task must be
in the database that the task works on: the one that its decorator names, or ``default``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import DEFAULT_DB_ALIAS

from ..compat import InvalidTask
from ..definition import find_task

if TYPE_CHECKING:
    from ..definition import Task

__all__ = ["check_atomic"]


def check_atomic(task: Task[..., Any], alias: str) -> None:
    """Raise ``InvalidTask`` if the job of an atomic task would be in a different database than its work."""
    works_on = find_task(task.module_path).database or DEFAULT_DB_ALIAS
    if alias != works_on:
        raise InvalidTask(
            f"{task.module_path} is atomic and works on the database {works_on!r}, but its job would be in "
            f"{alias!r}, and one transaction cannot span both. Enqueue it on {works_on!r}, or declare the "
            f"task with @task(atomic=True, database={alias!r})."
        )
