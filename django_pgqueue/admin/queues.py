"""Queues: the list, the page of one, and their settings, which can be edited."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.http import HttpRequest
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext, gettext_lazy as _, pgettext_lazy

from .. import formatting
from ..formatting import percent, throughput
from ..models import Job, JobStat, Pause, Queue, Worker
from ..monitoring.depth import Flow, Share, backlog, capped, depth_series, flows
from ..monitoring.queues import PATIENCE, QueueFigures, one_queue, queue_figures
from ..monitoring.spans import breakdown, percentile_text, series
from ..monitoring.workers import Vital
from ..postgres.timeout import TimeLimitReached, within
from ..tasks.registry import queues_in_use
from . import charts
from .base import DatabaseAdmin, DatabaseForm
from .console import assets, is_restricted, page_url, paused, task_url, with_query
from .display import Fact, alarm, breakable, column, dimmed, linked
from .limits import pause_button
from .shards import added_up, named
from .tasks import limit_facts
from .workers import Fleet, attendance, worker_rows

MOST_TASKS = 20
FEW_WAITING = 20  # jobs; what fewer have in common is no news
MOST_WORKERS = 50


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


class _Listed(list[Any]):
    """Has what Django's pages of a list need of a queryset."""

    _clone = list.copy


class QueueChangeList(ChangeList):
    """A page of the queues that match the search, by name, read with a constant number of statements.

    Every queue that is in use or paused is there. One without settings is an unsaved ``Queue``, and has a
    page, too.
    """

    model_admin: Any
    result_list: list[Any]
    trouble = ""
    is_slow = False  # whether something could not be read in time

    def get_results(self, request: HttpRequest) -> None:
        """Read the figures of all queues, and the settings of those on this page."""
        alias, site = self.model_admin.database, self.model_admin.admin_site
        (every, self.is_slow), fleet = queue_figures(alias), Fleet(alias)
        if any(figures.depth.needs_workers for figures in every):
            self.trouble = fleet.trouble
        elif self.is_slow:
            self.trouble = gettext("The figures of the queues could not be read in time.")
        words = self.query.casefold().split()
        found = [each for each in every if all(word in each.name.casefold() for word in words)]
        self.queryset: Any = _Listed(found)
        super().get_results(request)
        shown, self.result_list = list(self.result_list), []
        saved = self.root_queryset.in_bulk([figures.name for figures in shown])
        jobs_url, pauses = page_url(site, request, Job, "changelist"), paused(site, request, alias).queues
        url = partial(page_url, site, request)
        for figures in shown:
            queue: Any = saved.get(figures.name) or Queue(name=figures.name)
            queue.figures, queue.jobs_url = figures, jobs_url
            queue.serving, queue.silent = fleet.attending(queue.pk)
            queue.is_unattended = figures.depth.needs_workers and not queue.serving
            queue.is_paused = queue.pk in pauses
            queue.paused = pauses.get(queue.pk) or pause_button(url, "queue", queue.pk)
            self.result_list.append(queue)
        self.full_result_count = len(every)
        self.show_full_result_count = True
        self.show_admin_actions = bool(saved)


#: What is the highest of several shards, and not their sum.
HIGHEST = ("oldest_ready", "longest_running", "seconds")


def _added_up(rows: Mapping[str, Any]) -> Any:
    """Return a queue of several shards."""
    every = [*rows.values()]
    queue: Any = Queue(name=every[0].pk)
    queue.figures = added_up([each.figures for each in every], most=HIGHEST)
    queue.jobs_url = every[0].jobs_url
    queue.paused = named({alias: each.paused for alias, each in rows.items() if each.is_paused}, "; ")
    queue.serving = sum(each.serving for each in every)
    queue.silent = sum(each.silent for each in every)
    queue.is_unattended = any(each.is_unattended for each in every)
    return queue


class QueueAdmin(DatabaseAdmin[Queue]):
    """Empty settings default to those in ``PGQUEUE``. A queue without a row works and is listed, too."""

    form = QueueForm
    change_list = QueueChangeList
    add_up = staticmethod(_added_up)
    fixed_fields = ("name",)  # to which jobs refer
    purpose = _(
        "There are no queues yet. A queue holds jobs until a worker runs them. It appears with its first job."
    )
    list_display = (
        "name", "ready", "oldest", "running", "waiting", "rate", "failed", "workers", "paused",
        "own_settings",
    )  # fmt: skip
    search_fields = ("name",)
    sortable_by = ()
    fieldsets = (
        (None, {"fields": ("name",)}),
        (_("History"), {"fields": ("retention", "failed_retention")}),
        (_("Waits before a retry"), {"fields": ("backoff_base", "backoff_ceiling")}),
    )

    @admin.display(description=getattr(admin.ModelAdmin.action_checkbox, "short_description", ""))
    def action_checkbox(self, obj: Queue) -> SafeString:
        """Show a checkbox only if there is a row."""
        return mark_safe("&nbsp;") if obj._state.adding else super().action_checkbox(obj)

    @admin.display(description=_("workers"))
    def workers(self, queue: Any) -> str:
        """How many live workers claim its jobs, or which shards have none."""
        here = attendance(queue.serving, queue.silent)
        shards = {
            alias: attendance(each.serving, each.silent)
            for alias, each in getattr(queue, "of_shards", {}).items()
            if each.is_unattended
        }
        return alarm(named(shards, "; ") or here) if queue.is_unattended else here

    paused = column(_("pause"), lambda queue: queue.paused)

    @admin.display(description=pgettext_lazy("number of jobs", "ready"))
    def ready(self, queue: Any) -> str:
        """How many jobs a worker may claim now."""
        return _linked(queue, capped(queue.figures.depth.ready), due="now")

    @admin.display(description=_("oldest due for"))
    def oldest(self, queue: Any) -> str:
        """How long the oldest job has been due."""
        text = formatting.period(queue.figures.oldest)
        return alarm(text) if text and queue.is_unattended else text

    @admin.display(description=pgettext_lazy("number of jobs", "waiting"))
    def waiting(self, queue: Any) -> str:
        """How many jobs are not due yet, how many of these are retrying, and how many are blocked."""
        depth = queue.figures.depth
        parts = [
            format_html(str(text), _linked(queue, capped(count), **filters))
            for count, filters, text in (
                (depth.scheduled, {"status": "pending", "due": "later"}, _("{} scheduled")),
                (depth.retrying, {"status": "retry", "due": "later"}, _("{} retrying")),
                (depth.blocked, {"status": "blocked"}, _("{} blocked")),
            )
            if count != 0
        ]
        return format_html_join(", ", "{}", ((part,) for part in parts)) or dimmed(formatting.number(0))

    @admin.display(description=pgettext_lazy("number of jobs", "running"))
    def running(self, queue: Any) -> str:
        """How many jobs are running, and how many of these are lost."""
        running = _linked(queue, capped(queue.figures.depth.running), status="running")
        if not queue.figures.lost:
            return running
        lost = _("%(count)s lost") % {"count": formatting.number(queue.figures.lost)}
        return format_html("{}, {}", running, alarm(lost))

    @admin.display(description=_("rate"))
    def rate(self, queue: Any) -> str:
        """How fast attempts end now, and how that was in the last hour."""
        figures = queue.figures
        if figures.hour is None:
            return dimmed(formatting.number(0))
        return format_html("{}{}", dimmed(throughput(figures.rate)), charts.sparkline(figures.trend.attempts))

    @admin.display(description=_("failed in 24 hours"))
    def failed(self, queue: Any) -> str:
        """How many jobs failed in the last 24 hours, and were not retried."""
        day = queue.figures.failed.day
        failed = _linked(queue, capped(day), status="failed", finished="day")
        return alarm(failed) if day else failed

    @admin.display(description=_("settings"))
    def own_settings(self, queue: Queue) -> str:
        """The settings that differ from ``PGQUEUE``, and for which shard if they are not the same on all."""
        shards = getattr(queue, "of_shards", None)
        if shards:
            texts = {alias: self.own_settings(each) for alias, each in shards.items()}
            return texts.popitem()[1] if len({*texts.values()}) == 1 else named(texts, "; ")
        kept = {_("done jobs"): queue.retention, _("failed jobs"): queue.failed_retention}
        waits = {_("first wait"): queue.backoff_base, _("longest wait"): queue.backoff_ceiling}
        parts = []
        for jobs, period in kept.items():
            if period is not None:
                text = _("%(jobs)s kept for %(period)s") if period else _("%(jobs)s not kept")
                parts.append(text % {"jobs": jobs, "period": formatting.period(period)})
        parts += [f"{wait} {formatting.span(length)}" for wait, length in waits.items() if length is not None]
        return ", ".join(parts) or str(_("default"))

    @property
    def media(self) -> forms.Media:
        """Add what the charts need."""
        return super().media + charts.MEDIA + assets("pages")

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Queue | None:
        """Return the queue. One that is in use, paused or served but has no settings is an unsaved row."""
        if queue := super().get_object(request, object_id, from_field):
            return queue
        alias, name = self.database, object_id
        is_known = (
            name in queues_in_use(alias)
            or Pause.objects.using(alias).filter(kind=Pause.Kind.QUEUE, name=name).exists()
            or any(name in queues for queues in Worker.objects.using(alias).values_list("queues", flat=True))
        )
        return Queue(name=name) if is_known else None

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """The first settings of a queue add a row."""
        if obj is not None and obj._state.adding:
            return super().has_add_permission(request)
        return super().has_change_permission(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Without settings, there is nothing to delete."""
        return not (obj is not None and obj._state.adding) and super().has_delete_permission(request, obj)

    def page_context(self, request: HttpRequest, obj: Any) -> dict[str, Any]:
        """Add the figures of the queue. Each part that could not be read in time says so."""
        context = super().page_context(request, obj)
        if obj is None:
            return context
        name, alias = obj.pk, self.database
        span = charts.chosen_span(request, alias)
        url = partial(page_url, self.admin_site, request)
        figures, fleet = one_queue(alias, name), Fleet(alias)
        serving, pauses = fleet.of(name), paused(self.admin_site, request, alias)
        try:
            points = series(alias, span, queue=name)
            counted = depth_series(alias, span, name)
            every = [*charts.depth_charts(counted, points), *charts.span_charts(points)]
            drawn = charts.with_deploys(counted, every)
            tasks = breakdown(alias, span, "task", queue=name, most=MOST_TASKS)
            whole = breakdown(alias, span, "queue", queue=name)
        except TimeLimitReached:
            drawn, tasks, whole = [], [], []
        shares = _backlog(self, request, figures) if figures else None
        pages = ((gettext("Jobs of this queue"), Job), (gettext("Tasks of this queue"), JobStat))
        paused_by = filter(None, [pauses.everything, pauses.queues.get(name)])
        readings = {
            "name": name,
            "figures": figures,
            "backlog": shares,
            "flow": within(alias, PATIENCE, lambda: _flow_text(flows(alias).get(name))),
            "slots": sum(worker.slots for worker in serving if worker.vital == Vital.RUNNING),
            "rates": charts.rate_facts(whole[0]) if whole else [],
            "charts": drawn,
            "times": charts.span_filter(request),
            "facts": [
                *(Fact(gettext("Paused"), text) for text in paused_by),
                *limit_facts(alias, url, [f"queue:{name}", "*"]),
            ],
            **worker_rows(url, serving, MOST_WORKERS),
            "trouble": fleet.trouble if figures is not None and figures.depth.needs_workers else "",
            "tasks": [
                {
                    "figures": row,
                    "url": task_url(self.admin_site, request, row.task_path),
                    "share": percent(row.attempts / whole[0].attempts) if whole[0].attempts else "",
                    "errors": charts.share_text(charts.error_rate(row)),
                    "ran": percentile_text(row.run_histogram, 0.95),
                }
                for row in tasks
            ],
            "jobs_url": url(Job, "changelist"),
            "pause": pause_button(url, "queue", name),
            "links": [
                {"label": label, "url": with_query(page, queue=name)}
                for label, model in pages
                if (page := url(model, "changelist"))
            ],
        }
        return {**context, "pgqueue": readings}

    def save_model(self, request: HttpRequest, obj: Queue, form: Any, change: bool) -> None:
        """Save in the database of this class."""
        obj.save(using=self.writes_to)


def _backlog(page: QueueAdmin, request: HttpRequest, figures: QueueFigures) -> dict[str, Any] | None:
    """Return what fills the queue, for a user who may view all jobs; None if too few jobs wait."""
    site, alias = page.admin_site, page.database
    url = partial(page_url, site, request)
    if not url(Job, "changelist") or is_restricted(site, request):
        return None
    jobs: Any = site.get_model_admin(Job)
    try:
        found = backlog(alias, figures.depth, arguments=jobs.has_view_arguments_permission(request))
    except TimeLimitReached:
        return None
    if found.jobs < FEW_WAITING:
        return None
    rows = [_share_row(figures.name, share, url) for share in found.shares]
    return {"rows": rows, "found": found, "may_cancel": jobs.has_cancel_permission(request)}


def _share_row(queue: str, share: Share, url: partial[str]) -> dict[str, Any]:
    """Return what some of the waiting jobs have in common, with the link to these jobs and the pause."""
    is_task = share.kind == "task"
    filters = {"queue": queue, "task": share.value if is_task else share.task_path}
    if not is_task:
        filters["q"] = _TERMS[share.kind].format(share=share)
    name = f"{share.task_path} {filters['q']}" if share.kind == "argument" else share.value
    kind = "limit_key" if share.kind == "limit" else share.kind
    return {
        "what": _KINDS[share.kind],
        "place": share.place,
        "task": breakable(share.task_path),
        "value": breakable(share.value) if is_task else share.value,
        "share": percent(share.share),
        "jobs_url": with_query(url(Job, "changelist"), **filters),
        "pause": pause_button(url, kind, name),
    }


_KINDS = {"task": _("task"), "group": _("group"), "limit": _("limit key"), "argument": _("argument")}
_TERMS = {
    "group": "group:{share.value}",
    "limit": "key:{share.value}",
    "argument": "{share.place}={share.value}",
}


def _flow_text(flow: Flow | None) -> str:
    """Return how many jobs were counted, where it leads, and why."""
    if not flow or not flow.ready:
        return ""
    return "; ".join(filter(None, [flow.counted, flow.text, flow.rates if flow.grows else ""]))


def _linked(queue: Any, text: str, **filters: str) -> str:
    """Return a count with a link to these jobs, for a user who may view the list of jobs."""
    url = with_query(queue.jobs_url, queue=queue.pk, **filters)
    return linked(url if text != "0" else "", dimmed(text))
