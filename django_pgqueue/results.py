"""A job as ``django.tasks`` sees it: a TaskResult, with its four statuses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .compat import TaskError, TaskResult, TaskResultStatus
from .identity import public_id
from .models import Job

if TYPE_CHECKING:
    from .definition import Task

_STATUSES = {
    Job.Status.PENDING: TaskResultStatus.READY,
    Job.Status.RETRY: TaskResultStatus.READY,
    Job.Status.BLOCKED: TaskResultStatus.READY,
    Job.Status.RUNNING: TaskResultStatus.RUNNING,
    Job.Status.DONE: TaskResultStatus.SUCCESSFUL,
    Job.Status.FAILED: TaskResultStatus.FAILED,
    Job.Status.CANCELLED: TaskResultStatus.FAILED,
}


def task_result(job: Job, task: Task[..., Any], backend_alias: str) -> TaskResult[..., Any]:
    """The TaskResult of `job`: a call of `task` that went through the backend `backend_alias`."""
    from .backend import is_ours, resolve

    backend = resolve(backend_alias)
    alias, ours = job._state.db, backend if is_ours(backend) else None
    result: TaskResult[..., Any] = TaskResult(
        task=task,
        id=str(job.pk) if alias is None else public_id(job.pk, alias, ours),
        status=_STATUSES[Job.Status(job.status)],
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


def task_of(job: Job, definition: Task[..., Any], backend_alias: str) -> Task[..., Any]:
    """`definition` with the options that `job` was enqueued with, through the backend `backend_alias`.

    Nothing is validated: QUEUES may have changed since. A retry overwrites `run_after`: then it is left out.
    """
    from .backend import resolve
    from .definition import IMPLICIT

    unnamed = definition.backend == IMPLICIT and resolve(IMPLICIT).alias == backend_alias
    delayed = not job.attempts and job.run_after > job.enqueued_at
    return definition.with_values(
        {
            "priority": job.priority,
            "queue_name": job.queue_name,
            "backend": IMPLICIT if unnamed else backend_alias,
            "run_after": job.run_after if delayed else None,
            "run_after_delta": None,
            "metadata": job.metadata,
        }
    )
