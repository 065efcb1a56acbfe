"""The ``django.tasks`` view of a job: its public id, and a TaskResult with one of four statuses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..compat import TaskError, TaskResultStatus
from .task_results import LONGEST_ALIAS, QueueTaskResult, parse_id, public_id

if TYPE_CHECKING:
    from ..models import Job
    from .task import Task

__all__ = ["LONGEST_ALIAS", "forgotten_result", "parse_id", "public_id", "task_result"]

_STATUSES = {
    "pending": TaskResultStatus.READY,
    "retry": TaskResultStatus.READY,
    "blocked": TaskResultStatus.READY,
    "running": TaskResultStatus.RUNNING,
    "done": TaskResultStatus.SUCCESSFUL,
    "failed": TaskResultStatus.FAILED,
    "cancelled": TaskResultStatus.FAILED,
}


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
