"""Short names for ``manage.py shell``: ``from django_pgqueue.shell import *``.

    jobs("send_receipt", "failed")   the last jobs of a task, newest first
    failure()                        the last job that failed, with its traceback
    why(5)                           why a job does not run, or how it ended
    run_here(5)                      run a waiting job here, with its exception
    retry(5), cancel(5), enqueue(...), Job

Jobs are given as ids (``5``, or ``"other:5"`` in another database) or objects.
"""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet

from . import explanation
from .compat import DjangoTask, is_task
from .jobs.enqueue import enqueue
from .models import Job
from .models.changes import cancel, locate, retry
from .redaction import redact_call, redact_text
from .tasks.routing import default_backend
from .worker.one_process import run_job

__all__ = ["Job", "cancel", "enqueue", "failure", "jobs", "retry", "run_here", "why"]


def jobs(
    task: str | DjangoTask[..., Any] = "", status: str = "", queue: str = "", *, using: str | None = None
) -> QuerySet[Job]:
    """Return jobs, newest first. ``task``: a task, or a part of its path."""
    found = Job.objects.using(using or default_backend().home()).order_by("-pk")
    if task:
        path = task.module_path if is_task(task) else task
        found = found.filter(task_path__contains=path)
    if status:
        found = found.filter(status=Job.Status(status))
    return found.filter(queue_name=queue) if queue else found


def failure(job: Job | int | str | None = None, *, using: str | None = None) -> Job | None:
    """Print why a job failed, with the traceback, and return it. Default: the last that failed an attempt."""
    found = _last_failure(using or default_backend().home()) if job is None else _fresh(job, using)
    if found is None or not found.errors:
        print("No job has failed." if found is None else f"Job {found.pk} has no error.")  # noqa: T201
        return found
    error = found.errors[-1]
    args, kwargs = redact_call(found.args, found.kwargs, found.task_path)
    print(  # noqa: T201
        f"Job {found.pk}: {found.task_path}(*{args}, **{kwargs}), attempt {found.attempts}, {found.status}\n"
        f"{redact_text(error['traceback'].rstrip(), found.task_path)}"
    )
    return found


def why(job: Job | int | str, *, using: str | None = None) -> None:
    """Print why a job does not run, or how it ended, and what helps."""
    found = _fresh(job, using)
    reason = explanation.why(found)
    helps = explanation.fix(reason.code, reason.facts, reason.job_id, reason.database, in_shell=True)
    print(f"Job {found.pk} ({found.task_path}, {found.status}): {reason} {helps}".rstrip())  # noqa: T201


def run_here(job: Job | int | str, *, using: str | None = None) -> Any:
    """Run a waiting job here and now, and return its result. Raise what its task raises."""
    found = _fresh(job, using)
    result = run_job(found.pk, str(found._state.db))
    if result.error is not None:
        raise result.error
    return _fresh(found, using).result


def _last_failure(alias: str) -> Job | None:
    """Return the last job that failed, or that waits for another attempt."""
    failed = Job.objects.using(alias).filter(status="failed").order_by("-finished_at").first()
    waits = Job.objects.using(alias).filter(status="retry").order_by("-last_attempted_at").first()
    both = [job for job in (failed, waits) if job is not None and job.last_attempted_at is not None]
    return max(both, key=lambda job: job.last_attempted_at or job.enqueued_at, default=None)


def _fresh(job: Job | int | str, using: str | None) -> Job:
    alias, pk = locate(job)
    alias = using or alias
    found = Job.objects.using(alias).filter(pk=pk).first()
    if found is None:
        raise Job.DoesNotExist(f"There is no job {pk} in the database {alias!r}.")
    return found
