"""Queues: the list, the page of one, and their settings, which can be edited."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any
from urllib.parse import urlencode

from django import forms
from django.contrib import admin
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import ChangeList
from django.core.paginator import InvalidPage
from django.db.models import Model
from django.http import HttpRequest
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext, pgettext_lazy
from django.utils.translation import gettext_lazy as _

from .. import formatting
from ..formatting import throughput
from ..models import Job, JobStat, Pause, Queue, Worker
from ..monitoring.queues import MOST_FAILURES, QueueFigures, capped, one_queue, queue_figures
from ..monitoring.spans import breakdown, per_second, percentile_text, series
from ..monitoring.workers import Vital, busy_text, queues_text
from ..postgres.timeout import TimeLimitReached
from ..tasks.registry import queues_in_use
from .base import DatabaseAdmin, DatabaseForm
from .charts import (
    MEDIA,
    chosen_span,
    error_rate,
    rate_facts,
    share_text,
    span_charts,
    span_tabs,
    sparkline,
)
from .console import page_url, task_url
from .display import Fact, linked
from .jobs.texts import breakable
from .paused import paused
from .task_page import limit_facts
from .workers.fleet import Attendance, Fleet, state_badge

# ----------------------------------------------------------------------------
# Queues: their figures, and their settings, which can be edited. The list is in ``list``.


class QueueForm(DatabaseForm):
    """Checks the settings, and that the name is not used in the displayed database."""

    taken = _("A queue with this name already exists.")

    def clean(self) -> dict[str, Any]:
        """Refuse negative periods, and a longest wait that is shorter than the first one."""
        cleaned = super().clean() or self.cleaned_data
        for name in ("retention", "failed_retention"):
            kept = cleaned.get(name)
            if kept is not None and kept < timedelta(0):
                self.add_error(name, _("Enter zero or more."))
        base, ceiling = cleaned.get("backoff_base"), cleaned.get("backoff_ceiling")
        if base is not None and ceiling is not None and ceiling < base:
            self.add_error("backoff_ceiling", _("The longest wait must not be shorter than the first wait."))
        return cleaned


class QueueAdmin(DatabaseAdmin[Queue]):
    """Empty settings default to those in ``PGQUEUE``. A queue without a row works and is listed, too."""

    form = QueueForm
    list_display = (
        "name", "paused", "workers", "ready", "oldest", "waiting", "running", "rate", "failed",
        "own_settings",
    )  # fmt: skip
    search_fields = ("name",)
    sortable_by = ()
    fieldsets = (
        (None, {"fields": ("name",)}),
        (_("History"), {"fields": ("retention", "failed_retention")}),
        (_("Waits before a retry"), {"fields": ("backoff_base", "backoff_ceiling")}),
    )

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[QueueChangeList]:
        """Return the list of all queues."""
        return QueueChangeList

    @admin.display(description=getattr(admin.ModelAdmin.action_checkbox, "short_description", ""))
    def action_checkbox(self, obj: Queue) -> SafeString:
        """Show a checkbox only if there is a row."""
        return mark_safe("&nbsp;") if obj._state.adding else super().action_checkbox(obj)

    @admin.display(description=_("workers"))
    def workers(self, queue: Any) -> str:
        """How many live workers claim its jobs."""
        standing: Standing = queue.standing
        return _alarm(standing.attendance) if standing.unattended else str(standing.attendance)

    @admin.display(description=pgettext_lazy("number of jobs", "ready"))
    def ready(self, queue: Any) -> str:
        """How many jobs are due."""
        return capped(queue.standing.figures.depth.ready)

    @admin.display(description=_("oldest due for"))
    def oldest(self, queue: Any) -> str:
        """How long the oldest job has been due."""
        text = formatting.period(queue.standing.figures.oldest)
        return _alarm(text) if text and queue.standing.unattended else text

    @admin.display(description=pgettext_lazy("number of jobs", "waiting"))
    def waiting(self, queue: Any) -> str:
        """How many jobs are not due yet, how many of these are retrying, and how many are blocked."""
        standing: Standing = queue.standing
        depth = standing.figures.depth
        parts = [_("%(count)s scheduled") % {"count": capped(depth.scheduled)}] * bool(depth.scheduled)
        for count, status, text in (
            (depth.retrying, "retry", _("{} retrying")),
            (depth.blocked, "blocked", _("{} blocked")),
        ):
            if count:
                parts.append(format_html(str(text), standing.linked(capped(count), status=status)))
        return format_html_join(", ", "{}", ((part,) for part in parts)) or formatting.number(0)

    @admin.display(description=pgettext_lazy("number of jobs", "running"))
    def running(self, queue: Any) -> str:
        """How many jobs are running, and how many of these are lost."""
        standing: Standing = queue.standing
        running = standing.linked(capped(standing.figures.depth.running), status="running")
        if not standing.figures.lost:
            return running
        return format_html("{}, {}", running, _alarm(_("%(count)d lost") % {"count": standing.figures.lost}))

    @admin.display(description=_("rate"))
    def rate(self, queue: Any) -> str:
        """How fast attempts ended in the last hour, and how that was."""
        figures = queue.standing.figures
        if figures.hour is None:
            return formatting.number(0)
        points = [
            done + failed for done, failed in zip(figures.trend.done, figures.trend.failed, strict=True)
        ]
        return format_html("{}{}", throughput(per_second([figures.hour])), sparkline(points))

    @admin.display(description=_("failed in 24 hours"))
    def failed(self, queue: Any) -> str:
        """How many jobs failed in the last 24 hours."""
        standing: Standing = queue.standing
        failed = _failed(standing.jobs_url, standing.figures)
        return _alarm(failed) if standing.figures.failed_day else failed

    @admin.display(description=_("settings"))
    def own_settings(self, queue: Queue) -> str:
        """The settings that differ from ``PGQUEUE``."""
        parts = [
            _kept(_("done jobs"), queue.retention),
            _kept(_("failed jobs"), queue.failed_retention),
            _wait(_("first wait"), queue.backoff_base),
            _wait(_("longest wait"), queue.backoff_ceiling),
        ]
        return ", ".join(filter(None, parts)) or str(_("default"))

    @admin.display(description=_("pause"))
    def paused(self, queue: Any) -> str:
        """Who has paused it, why, and until when; or a link that pauses it."""
        standing: Standing = queue.standing
        return standing.paused

    @property
    def media(self) -> forms.Media:
        """Add what the charts need."""
        return super().media + MEDIA + forms.Media(css={"all": ["django_pgqueue/pages.css"]})

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Queue | None:
        """Return the queue. One that is in use but has no settings is an unsaved row."""
        return super().get_object(request, object_id, from_field) or existing_queue(self.database, object_id)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """The first settings of a queue add a row."""
        if obj is not None and obj._state.adding:
            return super().has_add_permission(request)
        return super().has_change_permission(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Without settings, there is nothing to delete."""
        return not (obj is not None and obj._state.adding) and super().has_delete_permission(request, obj)

    def page_context(self, request: HttpRequest, obj: Any) -> dict[str, Any]:
        """Add the figures of the queue."""
        context = super().page_context(request, obj)
        if obj is not None:
            add_readings(self, request, obj, context)
        return context

    def get_readonly_fields(self, request: HttpRequest, obj: Model | None = None) -> tuple[str, ...]:
        """Make the name of an existing queue read-only, because jobs refer to it."""
        return () if obj is None else ("name",)

    def save_model(self, request: HttpRequest, obj: Queue, form: Any, change: bool) -> None:
        """Save in the database of this class."""
        obj.save(using=self.writes_to)


def _jobs_link(jobs_url: str, queue: str, text: str, **filters: str) -> str:
    url = f"{jobs_url}?{urlencode({'queue': queue, **filters})}" if jobs_url and text != "0" else ""
    return linked(url, text)


def _failed(jobs_url: str, figures: QueueFigures) -> str:
    text = formatting.number(figures.failed_day) + ("+" if figures.failed_day >= MOST_FAILURES else "")
    return _jobs_link(jobs_url, figures.name, text, status="failed", finished="day")


def _alarm(text: Any) -> str:
    return format_html('<strong class="pgqueue-alarm">{}</strong>', text)


def _kept(what: Any, period: timedelta | None) -> str:
    if period is None:
        return ""
    text = _("%(jobs)s kept for %(period)s") if period else _("%(jobs)s not kept")
    return str(text % {"jobs": what, "period": formatting.period(period)})


def _wait(what: Any, seconds: float | None) -> str:
    return "" if seconds is None else f"{what} {formatting.span(seconds)}"


# ----------------------------------------------------------------------------
# The list of queues: every queue that is in use or paused, with or without its own settings.


@dataclass(frozen=True, slots=True)
class Standing:
    """The figures of a queue in the list, stored in its attribute ``standing``."""

    figures: QueueFigures
    attendance: Attendance
    jobs_url: str
    """The URL of the list of jobs; empty for a user who may not view it."""
    paused: str
    """Who has paused it, why, and until when; or a link to the form that pauses it, for users who may."""

    @property
    def unattended(self) -> bool:
        """Whether there is work and no worker."""
        return self.figures.needs_workers and not self.attendance.alive

    def linked(self, text: str, **filters: str) -> str:
        """Return a count with a link to these jobs."""
        return _jobs_link(self.jobs_url, self.figures.name, text, **filters)


class QueueChangeList(ChangeList):
    """A page of the queues that match the search, by name, read with a constant number of statements.

    A queue without settings is an unsaved ``Queue``. It has a page, too.
    """

    model_admin: Any
    trouble = ""
    is_slow = False
    """Whether something could not be read in time."""

    def get_results(self, request: HttpRequest) -> None:
        """Read the figures of all queues, and the settings of those on this page."""
        alias = self.model_admin.database
        site = self.model_admin.admin_site
        (every, self.is_slow), fleet = queue_figures(alias), Fleet(alias)
        if any(queue.needs_workers for queue in every):
            self.trouble = fleet.trouble
        elif self.is_slow:
            self.trouble = gettext("The figures of the queues could not be read in time.")
        words = self.query.casefold().split()
        found = [queue for queue in every if all(word in queue.name.casefold() for word in words)]
        jobs_url = page_url(site, request, Job, "changelist")
        pauses = paused(site, request, alias).queues
        pause_url = page_url(site, request, Pause, "add")
        self.result_list = self._with_settings(
            [
                Standing(
                    queue,
                    fleet.of(queue.name),
                    jobs_url,
                    pauses.get(queue.name) or _pause_link(pause_url, queue.name),
                )
                for queue in self._page_of(request, found)
            ]
        )
        self.full_result_count = len(every)
        self.show_full_result_count = True
        self.show_admin_actions = any(not queue._state.adding for queue in self.result_list)

    def _page_of(self, request: HttpRequest, found: list[QueueFigures]) -> list[QueueFigures]:
        self.paginator = self.model_admin.get_paginator(request, found, self.list_per_page)
        self.result_count = len(found)
        self.can_show_all = self.result_count <= self.list_max_show_all
        self.multi_page = self.result_count > self.list_per_page
        if not self.multi_page or (self.show_all and self.can_show_all):
            return found
        try:
            return list(self.paginator.page(self.page_num).object_list)
        except InvalidPage:
            raise IncorrectLookupParameters from None

    def _with_settings(self, standings: list[Standing]) -> list[Any]:
        saved = self.root_queryset.in_bulk([standing.figures.name for standing in standings])
        queues: list[Any] = []
        for standing in standings:
            queue: Any = saved.get(standing.figures.name) or Queue(name=standing.figures.name)
            queue.standing = standing
            queues.append(queue)
        return queues


def _pause_link(address: str, name: str) -> str:
    query = urlencode({"kind": "queue", "name": name})
    return linked(f"{address}?{query}", gettext("Pause")) if address else ""


# ----------------------------------------------------------------------------
# What the page of a queue shows above its settings: depth, age, rates over time, workers, and tasks.
#
# A queue without settings has the page, too, as long as it is in use.

MOST_TASKS = 20
MOST_WORKERS = 50


def existing_queue(alias: str, name: str) -> Queue | None:
    """Return an unsaved row for a queue that is in use, paused, or served; None if nothing knows its name."""
    name = name.replace("\0", "")
    if name in queues_in_use(alias) or _is_named(alias, name):
        return Queue(name=name)
    return None


def _is_named(alias: str, name: str) -> bool:
    if Pause.objects.using(alias).filter(kind=Pause.Kind.QUEUE, name=name).exists():
        return True
    return any(name in queues for queues in Worker.objects.using(alias).values_list("queues", flat=True))


def add_readings(
    admin: DatabaseAdmin[Any], request: HttpRequest, queue: Queue, context: dict[str, Any]
) -> None:
    """Add the figures to the context of the page. Each part that could not be read in time says so."""
    name, span, alias = queue.pk, chosen_span(request), admin.database
    figures, fleet = one_queue(alias, name), Fleet(alias, busy=True)
    serving = fleet.serving(name)
    try:
        charts = span_charts(series(alias, span, queue=name))
        tasks = breakdown(alias, span, "task", queue=name, most=MOST_TASKS)
        whole = breakdown(alias, span, "queue", queue=name)
    except TimeLimitReached:
        charts, tasks, whole = [], [], []
    jobs = page_url(admin.admin_site, request, Job, "changelist")
    context["pgqueue"] = {
        "name": name,
        "tiles": list(_tiles(figures, serving, jobs)),
        "rates": rate_facts(whole[0]) if whole else [],
        "charts": charts,
        "span_tabs": span_tabs(request),
        "facts": list(_facts(admin, request, name)),
        "workers": [_worker_row(admin, request, worker) for worker in serving[:MOST_WORKERS]],
        "more_workers": max(0, len(serving) - MOST_WORKERS),
        "trouble": fleet.trouble if figures is not None and figures.needs_workers else "",
        "tasks": [_task_row(admin, request, row, whole[0].attempts) for row in tasks],
        "links": list(_links(admin, request, name, jobs)),
    }


def _tiles(figures: QueueFigures | None, serving: list[Any], jobs: str) -> Iterator[Fact]:
    """Yield how many jobs wait and run now."""
    if figures is None:
        yield Fact(gettext("Depth"), gettext("could not be read in time"))
        return
    depth, count = figures.depth, partial(_jobs_link, jobs, figures.name)
    yield Fact(gettext("Ready"), capped(depth.ready))
    yield Fact(gettext("Oldest due for"), formatting.period(figures.oldest) or "-")
    yield Fact(gettext("Scheduled"), capped(depth.scheduled))
    yield Fact(gettext("Retrying"), count(capped(depth.retrying), status="retry"))
    yield Fact(gettext("Blocked"), count(capped(depth.blocked), status="blocked"))
    slots = sum(worker.slots for worker in serving if worker.vital == Vital.RUNNING)
    running = count(capped(depth.running), status="running")
    yield Fact(
        gettext("Running of slots"),
        format_html(gettext("{running} of {slots}"), running=running, slots=formatting.number(slots)),
    )
    longest = timedelta(seconds=depth.longest_running)
    yield Fact(gettext("Longest runs for"), formatting.period(longest) if depth.running else "-")
    if figures.lost:
        yield Fact(gettext("Lost"), _alarm(formatting.number(figures.lost)))
    yield Fact(gettext("Failed in 24 hours"), _failed(jobs, figures))


def _facts(admin: DatabaseAdmin[Any], request: HttpRequest, name: str) -> Iterator[Fact]:
    """Yield who has paused it, and the limits of its jobs."""
    site = admin.admin_site
    pauses = paused(site, request, admin.database)
    if pauses.everything:
        yield Fact(gettext("Paused"), pauses.everything)
    if name in pauses.queues:
        yield Fact(gettext("Paused"), pauses.queues[name])
    yield from limit_facts(admin, request, [f"queue:{name}", "*"])


def _worker_row(admin: DatabaseAdmin[Any], request: HttpRequest, worker: Any) -> dict[str, Any]:
    return {
        "worker": linked(page_url(admin.admin_site, request, Worker, "change", worker.pk), str(worker)),
        "queues": queues_text(worker),
        "busy": busy_text(worker),
        "badge": state_badge(worker),
        "age": formatting.period(worker.age),
    }


def _task_row(admin: DatabaseAdmin[Any], request: HttpRequest, row: Any, attempts: int) -> dict[str, Any]:
    site = admin.admin_site
    url = task_url(site, request, row.task_path)
    return {
        "task": linked(url, breakable(row.task_path)),
        "share": f"{100 * row.attempts / attempts:.0f} %" if attempts else "",
        "rate": throughput(per_second([row])),
        "failed": formatting.number(row.failed),
        "errors": share_text(error_rate(row)),
        "ran": percentile_text(row.run_histogram, 0.95),
    }


def _links(admin: DatabaseAdmin[Any], request: HttpRequest, name: str, jobs: str) -> Iterator[dict[str, Any]]:
    if jobs:
        yield {"label": gettext("Jobs of this queue"), "url": f"{jobs}?{urlencode({'queue': name})}"}
    if tasks := page_url(admin.admin_site, request, JobStat, "changelist"):
        yield {"label": gettext("Tasks of this queue"), "url": f"{tasks}?{urlencode({'queue': name})}"}
    if pause := page_url(admin.admin_site, request, Pause, "add"):
        yield {"label": gettext("Pause"), "url": f"{pause}?{urlencode({'kind': 'queue', 'name': name})}"}
