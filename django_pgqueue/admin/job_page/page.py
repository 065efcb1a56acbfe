"""The page of a job: what is shown below its fields, each part from a module of its own."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any

from django.template import TemplateDoesNotExist
from django.template.loader import get_template
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import pgettext

from ...formatting import get_logger
from ...models import Job, JobStat
from ...models.progress import Step
from ...monitoring.jobs import recorded_steps
from ...monitoring.spans import DAY, series
from ...postgres.timeout import TimeLimitReached
from ...redaction import names_of_call, redact, redact_call
from .. import display
from ..charts import MEDIA, Chart, percentiles
from ..display import page_url
from ..jobs import texts
from .clone import JobClones
from .errors import shown_errors, shown_logs
from .links import batch_of, links_of, shown_links
from .payload import shown_payload
from .timeline import timeline_of

if TYPE_CHECKING:
    from django.contrib.admin import AdminSite
    from django.http import HttpRequest, HttpResponse

logger = get_logger(__name__)


class JobPage(JobClones):
    """The part of ``JobAdmin`` with the page of a job."""

    def render_change_form(
        self,
        request: HttpRequest,
        context: dict[str, Any],
        add: bool = False,
        change: bool = False,
        form_url: str = "",
        obj: Job | None = None,
    ) -> HttpResponse:
        """Add the parts of the page. A job that has none of something costs no query for it."""
        if obj is not None:
            context.update(self.parts_of_page(request, obj))
            if context["pgqueue_runs"] is not None:
                context["media"] += MEDIA
        return super().render_change_form(request, context, add, change, form_url, obj)

    def parts_of_page(self, request: HttpRequest, job: Job) -> dict[str, Any]:
        """Return the context of the page of a job, without arguments for users who may not view them."""
        site, full = self.admin_site, self.has_view_arguments_permission(request)
        worker = partial(self.worker_name, job)
        return {
            "pgqueue_full": full,
            "pgqueue_heading": texts.breakable(str(job)),
            "pgqueue_address": request.build_absolute_uri(self.clone_url("change", job)),
            "pgqueue_clone": self._clone(request, job),
            "pgqueue_timeline": timeline_of(job, worker),
            "pgqueue_own_links": links_of(job) if full else [],
            "pgqueue_panel": panel_of(request, job) if full else "",
            "pgqueue_payload": shown_payload(site, request, job, full=full),
            "pgqueue_batch": batch_of(site, request, job),
            "pgqueue_links": shown_links(site, request, job),
            "pgqueue_steps": shown_steps(job, full=full),
            "pgqueue_runs": task_runs(site, request, job),
            "pgqueue_errors": shown_errors(job, worker),
            "pgqueue_logs": shown_logs(job, request.GET.get("log", "")),
        }

    def _clone(self, request: HttpRequest, job: Any) -> str:
        """Return the URL of the page "Enqueue again", if this user may use it for this job."""
        if job.payload_model is not None or not self.has_clone_permission(request):
            return ""
        return self.clone_url("clone", job)


# ----------------------------------------------------------------------------
# The panel of a task: a template of the project, shown on the page of its jobs.
#
# The template ``admin/django_pgqueue/job/panels/<path of the task>.html`` gets the job, its arguments by
# name and its result as they may be shown, and what the context processors add.

FOLDER = "admin/django_pgqueue/job/panels"
_PATH = re.compile(r"\w+(\.\w+)+")


def panel_of(request: HttpRequest, job: Job) -> str:
    """Return the panel of a job; empty if its task has none. A panel that fails does not hide the page."""
    if not _PATH.fullmatch(job.task_path):  # any text may be enqueued with SQL
        return ""
    try:
        template = get_template(f"{FOLDER}/{job.task_path}.html")
    except TemplateDoesNotExist:
        return ""
    except Exception:  # a syntax error
        return _failed(job)
    args, kwargs = redact_call(job.args, job.kwargs, job.task_path)
    names = names_of_call(job.task_path)
    named = {names.at(place): value for place, value in enumerate(args) if place < len(names.each)}
    context: dict[str, Any] = {
        "job": job,
        "arguments": {**named, **kwargs},
        "result": redact(job.result, job.task_path),
    }
    try:
        return template.render(context, request)
    except Exception:  # whatever the template calls
        return _failed(job)


def _failed(job: Job) -> str:
    logger.warning("The panel of %s failed for job %s.", job.task_path, job.pk, exc_info=True)
    return format_html("<p>{}</p>", _("The panel of this task failed; see the log."))


# ----------------------------------------------------------------------------
# The steps of a job as they are shown on its page, in the order in which they ended.


def shown_steps(job: Job, *, full: bool) -> list[dict[str, Any]]:
    """Return what the template shows of each step, without their results unless ``full``."""
    shown = [_shown_step(step, job.task_path) for step in recorded_steps(job)]
    return shown if full else [{**step, "result": ""} for step in shown]


def _shown_step(step: dict[str, Any], task_path: str) -> dict[str, Any]:
    kind, result, seconds = step["kind"] or "", step["result"], step["seconds"]
    return {
        "name": texts.breakable(str(step["name"] or "")),
        "kind": dict(Step.Kind.choices).get(kind, kind),
        "attempt": step["attempt"] or "",
        "took": "" if seconds is None else display.span(seconds),
        "when": _when(step),
        "result": "" if result is None else texts.json_value(redact(result, task_path)),
    }


def _when(step: dict[str, Any]) -> str:
    """When the step ended, or what it still waits for."""
    finished, wakes = step["finished_at"], step["wake_at"]
    if finished is not None:
        return display.time(finished)
    if wakes is None or step["kind"] == Step.Kind.EVENT:
        return pgettext("step", "waits")
    return display.filled(_("until %(time)s"), time=display.time(wakes))


# ----------------------------------------------------------------------------
# How long the attempts of a task ran lately, as a small chart on the page of each of its jobs.


def task_runs(site: AdminSite, request: HttpRequest, job: Job) -> Chart | None:
    """Return the chart of the last 24 hours. None: this user may not view statistics, the task has not run,
    or reading them takes too long.
    """
    if not page_url(site, request, JobStat, "changelist"):
        return None
    try:
        points = series(str(job._state.db), DAY, task=job.task_path)
    except TimeLimitReached:
        return None
    title = _("How long this task ran in the last 24 hours")
    chart = Chart(
        "pgqueue-runs", title, [point.start for point in points], percentiles(points, "run"), unit="seconds"
    )
    return None if chart.is_empty else chart
