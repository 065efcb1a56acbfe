"""Say in one sentence why a job does not run, or how it ended: for the shell.

The page "Why isn't my job running?" goes further. This looks at the row, the pauses and the workers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db import connections
from django.utils import timezone

from . import vitals
from .exceptions import UnknownTask
from .models import Job, Pause
from .paths import import_task
from .wording import counted, period

if TYPE_CHECKING:
    from .models import Worker

__all__ = ["why"]

_MOST_NAMED = 5
_WAITS_SQL = "SELECT parent_id, is_batch, name, state FROM pgqueue_waits_for_v1(%s)"


def why(job: Job) -> str:
    """Return why a job, as it is in the database now, does not run, or how it ended."""
    waited = period(timezone.now() - job.run_after)
    if job.is_over:
        return _how_it_ended(job)
    if job.status == Job.Status.RUNNING:
        since = "" if job.last_attempted_at is None else period(timezone.now() - job.last_attempted_at)
        return f"It runs: attempt {job.attempts}, for {since}{_how_far(job)}."
    if job.status == Job.Status.BLOCKED:
        return _waits_for(job) or f"It is blocked: {job.waiting_reason}."
    if job.run_after > timezone.now():
        reason = f" ({job.waiting_reason})" if job.waiting_reason else ""
        last = f" Its last error: {_last_error(job)}." if job.errors else ""
        return f"It is due in {period(job.run_after - timezone.now())}{reason}.{last}"
    return _why_not_claimed(job) or f"It has been due for {waited}, and waits for other jobs of its queue."


def _how_far(job: Job) -> str:
    """Return how far a running job is, as far as it has told."""
    step = f", at the step {job.current_step!r}" if job.current_step else ""
    progress = job.progress
    if progress is None:
        return step
    total = "" if progress.total is None else f" of {progress.total:,}"
    note = f" ({progress.note})" if progress.note else ""
    return f"{step}, {progress.done:,}{total} done{note}"


def _waits_for(job: Job) -> str:
    """Return which jobs and batches a job waits for, and what to do about those that have failed."""
    if not job.parent_ids:
        return ""
    with connections[job._state.db or "default"].cursor() as cursor:
        cursor.execute(_WAITS_SQL, [job.pk])
        parents = cursor.fetchall()
    if not parents:
        return ""
    others = [
        f"{'batch' if is_batch else 'job'} {key} ({', '.join(filter(None, [name, state]))})"
        for key, is_batch, name, state in parents[:_MOST_NAMED]
    ]
    if len(parents) > _MOST_NAMED:
        others.append(f"{len(parents) - _MOST_NAMED} more")
    failed = next(((key, is_batch) for key, is_batch, _, state in parents if state == "failed"), None)
    advice = ""
    if failed is not None:
        key, is_batch = failed
        call = f"Batch.get({key}).retry_failed()" if is_batch else f"retry({key})"
        advice = f" It goes on when what has failed is retried: {call}"
    return f"It waits for {', '.join(others)}.{advice}"


def _how_it_ended(job: Job) -> str:
    text = f"It is {job.status}"
    if job.status == Job.Status.FAILED and job.errors:
        return f"{text} after {counted(job.attempts, 'attempt')}: {_last_error(job)}."
    return f"{text}: {job.waiting_reason}." if job.waiting_reason else f"{text}."


def _last_error(job: Job) -> str:
    error = job.errors[-1]
    name = error["class"].removeprefix("builtins.")
    where = f" (in the step {error['step']!r})" if error.get("step") else ""
    return f"{name}: {error['message']}{where}"


def _why_not_claimed(job: Job) -> str:
    """Return why no worker takes a job that is due; nothing, if workers serve its queue."""
    alias = job._state.db or "default"
    for pause in Pause.objects.using(alias):
        if pause.kind == Pause.Kind.ALL or (pause.kind, pause.name) in {
            (Pause.Kind.QUEUE, job.queue_name), (Pause.Kind.TASK, job.task_path),
        }:  # fmt: skip
            reason = f" ({pause.reason})" if pause.reason else ""
            return f"It is paused: {pause}{reason}. To end the pause: manage.py pgqueue resume"
    workers = [worker for worker in vitals.listed().using(alias) if _serves(worker, job.queue_name)]
    if not workers:
        return (
            f"No worker serves the queue {job.queue_name!r} in the database {alias!r}. "
            f"Start one: manage.py runqueueworker --queues {job.queue_name}"
        )
    try:
        import_task(job.task_path)
    except UnknownTask as error:
        return f"Its task cannot be imported here: {error}."
    return ""


def _serves(worker: Worker, queue: str) -> bool:
    return queue in worker.queues if worker.queues else queue not in worker.exclude_queues
