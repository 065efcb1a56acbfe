"""The ``django.tasks`` view of a job: its public id, and a TaskResult with one of four statuses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import DEFAULT_DB_ALIAS

from .compat import TaskError, TaskResultStatus
from .task_results import QueueTaskResult

if TYPE_CHECKING:
    from .definition import Task
    from .models import Job

_STATUSES = {
    "pending": TaskResultStatus.READY,
    "retry": TaskResultStatus.READY,
    "blocked": TaskResultStatus.READY,
    "running": TaskResultStatus.RUNNING,
    "done": TaskResultStatus.SUCCESSFUL,
    "failed": TaskResultStatus.FAILED,
    "cancelled": TaskResultStatus.FAILED,
}
_MAX_ID = 2**63 - 1

#: The longest alias with which every id is shorter than 64 characters, which `django.tasks` promises.
LONGEST_ALIAS = 63 - len(f":{_MAX_ID}")


def public_id(job_id: int, alias: str | None) -> str:
    """Return a job's public id: ``"5"`` in the database ``default``, and ``"other:5"`` in another one.

    It contains the alias, not the backend, so that it means the same job whichever backend is asked.
    """
    return str(job_id) if alias in (None, DEFAULT_DB_ALIAS) else f"{alias}:{job_id}"


def parse_id(public: str) -> tuple[str, int]:
    """Return the alias and the number of an id. Raise ValueError."""
    alias, colon, number = public.rpartition(":")  # an alias may contain colons, a number cannot
    is_number = number.isascii() and number.isdigit() and len(number) <= 19
    if not is_number or (colon and not alias) or not 0 < int(number) <= _MAX_ID:
        raise ValueError(
            f"{public!r} is not the id of a job. An id looks like '5', or 'other:5' for another database."
        )
    return alias or DEFAULT_DB_ALIAS, int(number)


def task_result(job: Job, task: Task[..., Any], backend_alias: str) -> QueueTaskResult[..., Any]:
    """Return the TaskResult of `job`, which is a call of `task`, for the backend `backend_alias`."""
    result: QueueTaskResult[..., Any] = QueueTaskResult(
        task=task,
        id=public_id(job.pk, job._state.db),
        status=_STATUSES[job.status],
        enqueued_at=job.enqueued_at,
        started_at=job.started_at,
        finished_at=job.finished_at,
        last_attempted_at=job.last_attempted_at,
        args=job.args,
        kwargs=job.kwargs,
        backend=backend_alias,
        errors=[TaskError(exception_class_path=e["class"], traceback=e["traceback"]) for e in job.errors],
        worker_ids=job.worker_ids,
    )
    object.__setattr__(result, "_return_value", job.result)
    return result


def forgotten_result(job: Job, task: Task[..., Any], backend_alias: str) -> QueueTaskResult[..., Any]:
    """Return a result for a job of which only the id is known, because it is over and no longer kept.

    Such a job is found by an enqueue within the window of its unique key. Nothing is known about how it
    ended, and `django.tasks` has no status for that, so it counts as successful.
    """
    result: QueueTaskResult[..., Any] = QueueTaskResult(
        task=task,
        id=public_id(job.pk, job._state.db),
        status=TaskResultStatus.SUCCESSFUL,
        enqueued_at=None,
        started_at=None,
        finished_at=None,
        last_attempted_at=None,
        args=[],
        kwargs={},
        backend=backend_alias,
        errors=[],
        worker_ids=[],
    )
    return result
