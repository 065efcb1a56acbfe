"""How far a job is, as a bar with words. The bars of running jobs are read anew while a user looks at them,
and so is that of an action on many jobs before it starts.

The element of a running job names an address (``data-pgqueue-source``) and its job (``data-pgqueue-key``).
The script ``live.js`` asks that address for all keys of a page in one request, and shows what it returns.
Without the script, the page shows what was true when it was loaded.
"""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html
from django.utils.translation import gettext as _

from ... import formatting
from ...encoding import whole_number
from ...models.job import Status
from ...redaction import redact_text
from ...tasks.progress import Progress, stored_progress
from .. import display
from ..bulk import task

PAGE = "django_pgqueue_job_progress"
MOST_KEYS = 500
_PAUSE = 2  # seconds
#: What has to be read of a job to show its progress.
PROGRESS_COLUMNS = (
    "id", "task_path", "status", "marks", "current_step", "finished_at",
    "live_progress__at", "live_progress__done", "live_progress__total", "live_progress__note",
)  # fmt: skip


def progress_of_job(job: Any) -> str:
    """Format how far a job is, and at which step; empty if nothing is known."""
    progress: Progress | None = job.progress
    step = "" if job.is_finished else job.current_step
    step = step and format_html("{} {}", _("step"), display.breakable(step))
    if progress is None:
        return display.with_more("", step)
    amount = _amount(progress)
    html = format_html('<span class="pgqueue-amount">{}</span>', amount)
    if progress.fraction is not None:
        html = format_html(
            '<progress class="pgqueue-bar" max="100" value="{}" aria-label="{}" aria-valuetext="{}">'
            "</progress> {}",
            _percent(progress.fraction), _("Progress"), amount, html,
        )  # fmt: skip
    html = format_html('<span class="pgqueue-progress">{}</span>', html)
    return display.with_more(display.with_more(html, redact_text(progress.note, job.task_path)), step)


def progress_in_words(stored: Any, task_path: str) -> str:
    """Format the progress in an entry of the errors of a job; empty if there is none."""
    progress = stored_progress(stored)
    return "" if progress is None else f"{_amount(progress)} {redact_text(progress.note, task_path)}".strip()


def _amount(progress: Progress) -> str:
    done, total = (formatting.number(each or 0, 0 if isinstance(each, int) else 2) for each in progress[:2])
    if progress.fraction is None:
        return _("%(done)s done") % {"done": done}
    share = formatting.percent(_percent(progress.fraction) / 100)
    return _("%(done)s of %(total)s (%(share)s)") % {"done": done, "total": total, "share": share}


def _percent(fraction: float) -> int:
    return int(fraction * 100)  # 100 only if all is done


def live_progress(job: Any, address: str) -> str:
    """Format how far a job is. While that changes, the element names the address that shows it anew."""
    if not (address and _changes(job)):
        return _now(job)
    return format_html(
        '<div id="pgqueue-progress-{}" data-pgqueue-source="{}" data-pgqueue-key="{}"'
        ' data-pgqueue-pause="{}">{}</div>',
        job.pk, address, job.pk, _PAUSE, _now(job),
    )  # fmt: skip


def has_progress(job: Any) -> bool:
    """Return whether there is something to show."""
    return _changes(job) or bool(_now(job))


def _changes(job: Any) -> bool:
    """Return whether the progress changes: the job runs, or it runs an action for a user who watches it."""
    is_awaited = job.status == Status.PENDING and job.task_path == task.run.module_path
    return bool(is_awaited or job.status == Status.RUNNING)


def _now(job: Any) -> str:
    if job.status == Status.PENDING and _changes(job):
        return _("It has not started yet.")
    if html := progress_of_job(job):
        return html
    # What an action on many jobs has changed, also for users who may not view results: it has nothing of the
    # jobs in it but their number.
    is_action = job.status == Status.DONE and job.task_path == task.run.module_path
    return str(job.result.get("words", "")) if is_action and isinstance(job.result, dict) else ""


def progress_view(admin: Any, request: HttpRequest) -> HttpResponse:
    """Return the elements of these jobs (``?keys=5,7``). Elements of jobs that run no more have no
    address, and neither do elements of jobs whose page this user may not view.
    """
    given = map(whole_number, request.GET.get("keys", "").split(","))
    keys = list(dict.fromkeys(key for key in given if key is not None))[:MOST_KEYS]
    # The queue is what a project may decide by.
    jobs = admin.get_queryset(request).select_related("live_progress").filter(pk__in=keys, shelf=0)
    jobs = jobs.only(*PROGRESS_COLUMNS, "shelf", "queue_name")
    found = {job.pk: job for job in jobs if admin.has_view_permission(request, job) and _changes(job)}
    over = _("The job has ended. Reload the page.")
    parts = [
        live_progress(found[key], request.path)
        if key in found
        else format_html('<div id="pgqueue-progress-{}"><a href="">{}</a></div>', key, over)
        for key in keys
    ]
    return HttpResponse("\n".join(parts))
