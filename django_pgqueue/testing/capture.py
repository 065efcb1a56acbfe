"""``enqueued``: which jobs a block has made, whichever way they were enqueued."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from django.db import connections

from ..compat import DjangoTask
from ..definition import adopt
from ..models import Job
from ..routing import default_backend, is_ours, resolve
from .databases import alias_of
from .memory import JOBS, Memory

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..any_task import AnyTask

__all__ = ["enqueued", "is_dummy", "jobs_after", "path_of"]

_LAST_SQL = "SELECT CASE WHEN is_called THEN last_value ELSE last_value - 1 END FROM pgqueue_job_id_seq"


@contextmanager
def enqueued(task: AnyTask[..., Any] | str | None = None, *, using: str | None = None) -> Iterator[list[Job]]:
    """Collect the jobs that the block enqueues: with ``enqueue()``, ``enqueue_many()``, the tasks' own
    ``.enqueue()``, SQL, a trigger, or a schedule. The list is filled at the end of the block.

    They are in the order of their ids, and as they are at the end. ``task``: only those of this task, or of
    this path. ``using``: the alias of the database.
    """
    jobs: list[Job] = []
    dummy = is_dummy(task)
    alias = alias_of(using)
    before = len(JOBS) if dummy else _last_id(alias)
    yield jobs
    path = None if task is None else path_of(task)
    found = JOBS[before:] if dummy else jobs_after(before, alias)
    jobs += [job for job in found if path in (None, job.task_path)]


def jobs_after(last: int, alias: str) -> list[Job]:
    """Return the jobs with a larger id."""
    return list(Job.objects.using(alias).filter(pk__gt=last).order_by("pk"))


def path_of(task: Any) -> str:
    """Return the path of a task, which may be given as a path. Raise ``TypeError`` if it is neither."""
    if isinstance(task, str):
        return task
    if isinstance(task, DjangoTask):
        return task.module_path
    raise TypeError(f"This takes a task, or the path of a task such as 'shop.tasks.report', not {task!r}.")


def is_dummy(task: Any = None) -> bool:
    """Return whether jobs of this task are kept in memory only."""
    backend = resolve(adopt(task).backend) if isinstance(task, DjangoTask) else default_backend()
    return is_ours(backend) and isinstance(backend.keeper, Memory)


def _last_id(alias: str) -> int:
    with connections[alias].cursor() as cursor:
        cursor.execute(_LAST_SQL)
        return int(cursor.fetchone()[0])
