"""The page of a task: how it does over time, its policy, its source, what enqueues it, and what limits it.

A task that this process cannot find has the page, too: its jobs and figures are in the database.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlencode

from django.db.models import Q
from django.db.models.functions import Now
from django.forms import Media
from django.urls import NoReverseMatch, reverse
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import pgettext

from ... import wording
from ...concurrency import limit_name
from ...discovery import known_tasks, source_place
from ...figures.recent import Callers, callers
from ...figures.spans import breakdown, series
from ...figures.throughput import per_second, rate_text
from ...models import Job, Limit, Pause, Schedule
from ...models.job import Status
from ...schedules import board, words
from ...time_limit import TimeLimitReached
from .. import display
from ..charts.chart import MEDIA
from ..charts.percentiles import pair_text
from ..charts.span_charts import span_charts
from ..charts.span_tabs import chosen_span, span_tabs
from ..console import console_page
from ..failures.block import failure_block
from ..jobs.texts import breakable
from ..links import page_url, task_url
from ..paused import details, paused
from ..schedules.fields import how_soon, state_badge
from .list import error_rate, share_text
from .policy import policy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django.http import HttpRequest
    from django.template.response import TemplateResponse

    from ...definition import Task
    from ..base import DatabaseAdmin

__all__ = ["Fact", "limit_text", "linked", "task_page"]

MOST_SCHEDULES = 50


@dataclass(frozen=True, slots=True)
class Fact:
    """A line of the page."""

    label: str
    text: Any


def task_page(admin: DatabaseAdmin[Any], request: HttpRequest, path: str) -> TemplateResponse:
    """Return the page for a user who may view statistics."""
    path = path.replace("\0", "")
    task = known_tasks().get(path)
    try:
        charts = span_charts(series(admin.database, chosen_span(request), task=path))
    except TimeLimitReached:
        charts = []
    return console_page(
        admin,
        request,
        "admin/django_pgqueue/task.html",
        path,
        pgqueue_paused=paused(admin.admin_site, request, admin.database),
        media=MEDIA + Media(css={"all": ["django_pgqueue/failures.css"]}),
        path=path,
        name=breakable(path),
        is_known=task is not None,
        summary=_summary(task),
        tiles=_tiles(admin, request, path),
        charts=charts,
        span_tabs=span_tabs(request),
        facts=[*_source(task), *_held_back(admin, request, path, task)],
        policy=policy(task) if task is not None else [],
        failures=_failures(admin, request, path),
        schedules=_schedules(admin, request, path),
        callers=_callers(admin, request, path, task),
        links=list(_links(admin, request, path)),
    )


def _summary(task: Task[..., Any] | None) -> str:
    """Return the first line of its docstring."""
    return (task.func.__doc__ or "").strip().partition("\n")[0] if task is not None else ""


def _tiles(admin: DatabaseAdmin[Any], request: HttpRequest, path: str) -> list[Fact]:
    """Return the figures of the whole span."""
    span = chosen_span(request)
    try:
        found = breakdown(admin.database, span, "task", task=path)
    except TimeLimitReached:
        return [Fact(_("Figures"), _("The statistics could not be read in time."))]
    if not found:
        return [Fact(_("Attempts"), _("none in this time"))]
    [row] = found
    return [
        Fact(_("Rate"), rate_text(per_second([row]))),
        Fact(_("Done"), display.number(row.done)),
        Fact(_("Failed"), display.number(row.failed)),
        Fact(_("Retried"), display.number(row.retried)),
        Fact(pgettext("share of the attempts", "Errors"), share_text(error_rate(row))),
        Fact(_("Waited p50, p95"), pair_text(row.wait_histogram)),
        Fact(_("Ran p50, p95"), pair_text(row.run_histogram)),
    ]


def _source(task: Task[..., Any] | None) -> Iterator[Fact]:
    if task is not None:
        yield Fact(_("Source"), format_html("<code>{}</code>", source_place(task)))


def _failures(admin: DatabaseAdmin[Any], request: HttpRequest, path: str) -> dict[str, Any] | None:
    """Return the largest groups of its failures, for users who may view jobs."""
    site = admin.admin_site
    if not page_url(site, request, Job, "changelist"):
        return None
    try:
        return failure_block(
            cast("DatabaseAdmin[Any]", site.get_model_admin(Job)), chosen_span(request), path
        )
    except NoReverseMatch:  # the project has replaced the page of jobs
        return None


def _held_back(
    admin: DatabaseAdmin[Any], request: HttpRequest, path: str, task: Task[..., Any] | None
) -> Iterator[Fact]:
    """Yield the pauses and the limits that apply to the jobs of the task."""
    queue = task.queue_name if task is not None else ""
    in_force = Q(until__isnull=True) | Q(until__gt=Now())
    targets = (
        Q(kind=Pause.Kind.TASK, name=path) | Q(kind=Pause.Kind.ALL) | Q(kind=Pause.Kind.QUEUE, name=queue)
    )
    for pause in Pause.objects.using(admin.database).filter(in_force & targets).order_by("kind"):
        what = {Pause.Kind.TASK: _("this task"), Pause.Kind.QUEUE: _("queue %(name)s") % {"name": queue}}
        text = format_html("{}: {}", what.get(Pause.Kind(pause.kind), _("everything")), details(pause))
        yield Fact(_("Paused"), linked(page_url(admin.admin_site, request, Pause, "change", pause.pk), text))
    names = {path, "*", f"queue:{queue}"}
    if task is not None:
        names |= {limit_name(task) or path}
    for limit in Limit.objects.using(admin.database).filter(pk__in=names).order_by("pk"):
        url = page_url(admin.admin_site, request, Limit, "change", limit.pk)
        yield Fact(_("Limit"), linked(url, limit_text(limit)))


def limit_text(limit: Limit) -> str:
    """Return the numbers in force: those set by hand, or those of the code."""
    running = limit.running if limit.is_overridden else limit.declared
    starts, period = limit.starts, limit.period
    if not limit.is_overridden:
        starts, period = limit.declared_starts, limit.declared_period
    parts = []
    if running is not None:
        parts.append(_("at most %(count)s at once") % {"count": display.number(running)})
    if starts is not None and period is not None:
        parts.append(_("at most %(rate)s") % {"rate": wording.rate(starts, period)})
    return f"{limit.pk}: {', '.join(parts) or '-'}"


def linked(url: str, text: Any) -> Any:
    """Return a text as a link, if there is an address."""
    return format_html('<a href="{}">{}</a>', url, text) if url else text


def _schedules(admin: DatabaseAdmin[Any], request: HttpRequest, path: str) -> list[dict[str, Any]] | None:
    """Return the schedules that enqueue it; None for a user who may not view schedules."""
    if not page_url(admin.admin_site, request, Schedule, "changelist"):
        return None
    rows = Schedule.objects.using(admin.database).filter(task_path=path).order_by("name")
    return [
        {
            "name": breakable(schedule.pk),
            "url": page_url(admin.admin_site, request, Schedule, "change", schedule.pk),
            "timing": words.timing(schedule),
            "state": state_badge(schedule),
            "next": _next_run(schedule),
        }
        for schedule in board.with_clock(rows)[:MOST_SCHEDULES]
    ]


def _next_run(schedule: Any) -> str:
    """Return how soon it runs; empty if it does not."""
    if not schedule.is_active:
        return ""
    try:
        [run] = board.next_runs(schedule, 1)
    except ValueError:
        return _("cannot run")
    return how_soon(run, schedule.now)


def _callers(
    admin: DatabaseAdmin[Any], request: HttpRequest, path: str, task: Task[..., Any] | None
) -> dict[str, Any]:
    """Return what enqueues it, as far as that is known."""
    try:
        found, is_slow = callers(admin.database, path), False
    except TimeLimitReached:
        found, is_slow = Callers(), True
    payload = task.payload._meta.label if task is not None and task.payload is not None else ""
    parents = [
        {"name": breakable(each), "url": task_url(admin.admin_site, request, each)} for each in found.parents
    ]
    return {"found": found, "is_slow": is_slow, "payload": payload, "parents": parents}


def _links(admin: DatabaseAdmin[Any], request: HttpRequest, path: str) -> Iterator[dict[str, Any]]:
    """Yield the links to its jobs by status, to its failures, and to the form that pauses it."""
    if jobs := page_url(admin.admin_site, request, Job, "changelist"):
        for status in Status:
            query = urlencode({"task": path, "status": status.value})
            yield {"label": display.status_badge(status), "url": f"{jobs}?{query}"}
        try:
            failures = reverse("admin:django_pgqueue_job_failures", current_app=admin.admin_site.name)
            yield {"label": _("Failures by group"), "url": f"{failures}?{urlencode({'task': path})}"}
        except NoReverseMatch:
            pass
    if pause := page_url(admin.admin_site, request, Pause, "add"):
        yield {"label": _("Pause"), "url": f"{pause}?{urlencode({'kind': 'task', 'name': path})}"}
