"""How far a job is, as a bar with words. The bars of running jobs are read anew while a user looks at them,
and so is that of an action on many jobs before it starts.

The element of a running job names an address (``data-pgqueue-source``) and its job (``data-pgqueue-key``).
The script ``live.js`` asks that address for all keys of a page in one request, and shows what it returns.
Without the script, the page shows what was true when it was loaded.
"""

from __future__ import annotations

from typing import Any

from django.contrib.admin import AdminSite
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.formats import number_format
from django.utils.html import format_html, format_html_join
from django.utils.translation import gettext as _

from ... import formatting
from ...encoding import whole_number
from ...models import Job
from ...models.job import Status
from ...redaction import redact_text
from ...tasks.progress import Progress, stored_progress
from .. import display
from ..bulk import task
from ..console import site_url
from . import texts

MOST_KEYS = 500
_PAUSE = 2  # seconds
#: What has to be read of a job to show its progress.
COLUMNS = (
    "id", "task_path", "status", "marks", "current_step", "finished_at",
    "live_progress__at", "live_progress__done", "live_progress__total", "live_progress__note",
)  # fmt: skip


def with_progress(jobs: QuerySet[Job]) -> QuerySet[Job]:
    """Let the jobs be read together with their progress."""
    return jobs.select_related("live_progress")


def progress_of_job(job: Any, progress: Progress | None) -> str:
    """Format how far a job is, and at which step; empty if nothing is known."""
    step = "" if job.is_finished else job.current_step
    step = step and format_html("{} {}", _("step"), texts.breakable(step))
    if progress is None:
        return display.with_more("", step)
    told: str = format_html('<span class="pgqueue-amount">{}</span>', _amount(progress))
    if progress.fraction is not None:
        told = format_html(
            '<progress class="pgqueue-bar" max="100" value="{}" aria-label="{}" aria-valuetext="{}">'
            "</progress> {}",
            _percent(progress.fraction), _("Progress"), _amount(progress), told,
        )  # fmt: skip
    told = format_html('<span class="pgqueue-progress">{}</span>', told)
    for text in (redact_text(progress.note, job.task_path), step):
        told = display.with_more(told, text)
    return told


def progress_in_words(stored: Any, task_path: str) -> str:
    """Format the progress in an entry of the errors of a job; empty if there is none."""
    progress = stored_progress(stored)
    return "" if progress is None else f"{_amount(progress)} {redact_text(progress.note, task_path)}".strip()


def live_progress(site: AdminSite, job: Any) -> str:
    """Format how far a job is, for a script to show it anew while the job runs."""
    shown = _now(job)
    if not _changes(job):
        return shown
    address = site_url(site, "django_pgqueue_job_progress")
    return _live(address, job.pk, shown) if address else shown


def has_progress(job: Any) -> bool:
    """Return whether there is something to show."""
    return _changes(job) or bool(_now(job))


def _changes(job: Any) -> bool:
    """Return whether the progress changes: the job runs, or it runs an action for a user who watches it."""
    return job.status == Status.RUNNING or _is_awaited(job)


def _is_awaited(job: Any) -> bool:
    return bool(job.status == Status.PENDING and job.task_path == task.run.module_path)


def _now(job: Any) -> str:
    if _is_awaited(job):
        return _("It has not started yet.")
    return progress_of_job(job, job.progress) or _outcome(job)


def _outcome(job: Any) -> str:
    """Return what an action on many jobs has changed, also for users who may not view results: it has nothing
    of the jobs in it but their number.
    """
    if job.status != Status.DONE or job.task_path != task.run.module_path or not isinstance(job.result, dict):
        return ""
    return str(job.result.get("words", ""))


def _live(address: str, key: int, shown: str) -> str:
    """Return the element of a running job."""
    return format_html(
        '<div id="pgqueue-progress-{}" data-pgqueue-source="{}" data-pgqueue-key="{}"'
        ' data-pgqueue-pause="{}">{}</div>',
        key, address, key, _PAUSE, shown,
    )  # fmt: skip


def progress_view(admin: Any, request: HttpRequest) -> HttpResponse:
    """Return the elements of these jobs (``?keys=5,7``). Those of jobs that run no more have no address, nor
    those of jobs whose page this user may not view.
    """
    given = map(whole_number, request.GET.get("keys", "").split(","))
    keys = [key for key in given if key is not None]
    jobs = with_progress(admin.get_queryset(request).filter(pk__in=keys[:MOST_KEYS], shelf=0))
    # The queue is what a project may decide by.
    jobs = jobs.only(*COLUMNS, "shelf", "queue_name")
    found = {job.pk: job for job in jobs if admin.has_view_permission(request, job)}
    parts: list[str] = []
    for key in dict.fromkeys(keys[:MOST_KEYS]):
        job = found.get(key)
        if job is None or not _changes(job):
            over = _("It runs no more. Show how it is now.")
            parts.append(format_html('<div id="pgqueue-progress-{}"><a href="">{}</a></div>', key, over))
        else:
            parts.append(_live(request.path, key, _now(job)))
    return HttpResponse(format_html_join("\n", "{}", ((part,) for part in parts)))


def _amount(progress: Progress) -> str:
    done = _number(progress.done)
    if progress.fraction is None or progress.total is None:
        return _("%(done)s done") % {"done": done}
    amounts = {"done": done, "total": _number(progress.total), "percent": _percent(progress.fraction)}
    return _("%(done)s of %(total)s (%(percent)d %%)") % amounts


def _percent(fraction: float) -> int:
    """Return whole percent. It is 100 only if all is done."""
    return int(fraction * 100)


def _number(value: float) -> str:
    return formatting.number(value) if isinstance(value, int) else number_format(value, 2, use_l10n=True)
