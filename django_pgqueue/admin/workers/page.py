"""What the page of a worker shows about its jobs: those that it runs, and those that it has ended lately."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db.models import DurationField, ExpressionWrapper, F
from django.db.models.functions import Now
from django.utils.translation import gettext as _

from ...figures.recent import Ended, History, ended_by
from ...figures.throughput import rate_text
from ...models import Job
from ...models.job import Status
from ...time_limit import TimeLimitReached
from ...vitals import Vital, vital
from .. import display
from ..jobs.progress import COLUMNS, progress_of_job, with_progress
from ..jobs.texts import breakable
from ..links import page_url, task_url

if TYPE_CHECKING:
    from django.db.models import QuerySet
    from django.http import HttpRequest

    from ...models import Worker
    from ..base import DatabaseAdmin

__all__ = ["add_jobs"]

MOST_JOBS = 100


def add_jobs(
    admin: DatabaseAdmin[Any], request: HttpRequest, worker: Worker, context: dict[str, Any]
) -> None:
    """Add the jobs of the worker to the context of its page, for users who may view jobs."""
    if not page_url(admin.admin_site, request, Job, "changelist"):
        return
    jobs = list(_running_jobs(admin.database, worker)[: MOST_JOBS + 1])
    context["pgqueue_jobs"] = [_job_row(admin, request, job, worker) for job in jobs[:MOST_JOBS]]
    context["pgqueue_more_jobs"] = len(jobs) > MOST_JOBS
    context["pgqueue_shows_jobs"] = True
    try:
        history = ended_by(admin.database, worker.pk)
    except TimeLimitReached:
        context["pgqueue_history_note"] = _("What it has ended could not be read in time.")
        return
    context["pgqueue_history"] = [_ended_row(admin, request, job) for job in history.jobs]
    context["pgqueue_history_note"] = _note(history)


def _running_jobs(alias: str, worker: Worker) -> QuerySet[Any]:
    """Return the jobs that a worker has claimed, the longest running first, without their arguments."""
    elapsed = ExpressionWrapper(Now() - F("last_attempted_at"), output_field=DurationField())
    jobs = Job.objects.using(alias).filter(shelf=0, status="running", worker=worker.pk)
    columns = (*COLUMNS, "task_path", "queue_name", "deadline", "cancel_requested_at", "last_attempted_at")
    rows: QuerySet[Any] = with_progress(jobs).only(*columns).annotate(elapsed=elapsed)
    return rows.order_by("last_attempted_at", "pk")


def _job_row(admin: DatabaseAdmin[Any], request: HttpRequest, job: Any, worker: Worker) -> dict[str, Any]:
    return {
        "job": job,
        "task": breakable(job.task_path),
        "task_url": task_url(admin.admin_site, request, job.task_path),
        "badge": display.status_badge(Status.RUNNING),
        "progress": progress_of_job(job, job.progress),
        "url": page_url(admin.admin_site, request, Job, "change", job.pk),
        "elapsed": display.period(job.elapsed),
        "deadline": display.time(job.deadline),
        "lost": vital(worker) == Vital.DEAD,
    }


def _ended_row(admin: DatabaseAdmin[Any], request: HttpRequest, job: Ended) -> dict[str, Any]:
    return {
        "id": job.id,
        "url": page_url(admin.admin_site, request, Job, "change", job.id),
        "task": breakable(job.task_path),
        "task_url": task_url(admin.admin_site, request, job.task_path),
        "queue": job.queue_name,
        "badge": display.status_badge(job.status),
        "ended": display.time(job.finished_at),
        "duration": display.seconds(job.duration),
        "attempts": display.number(job.attempts),
    }


def _note(history: History) -> str:
    """Return how fast it ended jobs, among those that ended last."""
    if history.per_second is None:
        return _("It ran no job that ended lately.")
    return _("About %(rate)s, over the last %(period)s.") % {
        "rate": rate_text(history.per_second),
        "period": display.span(history.seconds),
    }
