"""What the page of a queue shows above its settings: depth, age, rates over time, workers, and tasks.

A queue without settings has the page, too, as long as it is in use.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import pgettext

from ...figures.queues import MOST_FAILURES, QueueFigures, one_queue
from ...figures.spans import breakdown, series
from ...figures.throughput import per_second, rate_text
from ...models import Job, JobStat, Limit, Pause, Queue, Worker
from ...queue_names import queues_in_use
from ...time_limit import TimeLimitReached
from ...vitals import Vital, busy_text, queues_text
from .. import display
from ..charts.percentiles import pair_text, percentile_text
from ..charts.span_charts import span_charts
from ..charts.span_tabs import chosen_span, span_tabs
from ..jobs.texts import breakable
from ..links import page_url, task_url
from ..paused import paused
from ..tasks.list import error_rate, share_text
from ..tasks.page import Fact, limit_text, linked
from ..workers.fleet import Fleet, state_badge

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django.http import HttpRequest

    from ..base import DatabaseAdmin

__all__ = ["add_readings", "existing_queue"]

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
        "rates": list(_rates(whole[0])) if whole else [],
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
        yield Fact(_("Depth"), _("could not be read in time"))
        return
    depth, name = figures.depth, figures.name

    def count(text: str, **filters: str) -> Any:
        return linked(f"{jobs}?{urlencode({'queue': name, **filters})}" if jobs and text != "0" else "", text)

    yield Fact(_("Ready"), display.capped(depth.ready))
    yield Fact(_("Oldest due for"), display.period(figures.oldest) or "-")
    yield Fact(_("Scheduled"), display.capped(depth.scheduled))
    yield Fact(_("Backing off"), count(display.capped(depth.retrying), status="retry"))
    yield Fact(_("Blocked"), count(display.capped(depth.blocked), status="blocked"))
    slots = sum(worker.slots for worker in serving if worker.vital == Vital.RUNNING)
    running = count(display.capped(depth.running), status="running")
    yield Fact(
        _("Running of slots"),
        format_html(_("{running} of {slots}"), running=running, slots=display.number(slots)),
    )
    longest = timedelta(seconds=depth.longest_running)
    yield Fact(_("Longest runs for"), display.period(longest) if depth.running else "-")
    if figures.lost:
        yield Fact(
            _("Lost"), format_html('<strong class="pgqueue-alarm">{}</strong>', display.number(figures.lost))
        )
    failed = display.number(figures.failed_day) + ("+" if figures.failed_day >= MOST_FAILURES else "")
    yield Fact(_("Failed in 24 hours"), count(failed, status="failed", finished="day"))


def _rates(row: Any) -> Iterator[Fact]:
    """Yield what ran in the span."""
    yield Fact(_("Rate"), rate_text(per_second([row])))
    yield Fact(_("Done"), display.number(row.done))
    yield Fact(_("Failed"), display.number(row.failed))
    yield Fact(_("Retried"), display.number(row.retried))
    yield Fact(pgettext("share of the attempts", "Errors"), share_text(error_rate(row)))
    for label, histogram in (
        (_("Waited p50, p95"), row.wait_histogram),
        (_("Ran p50, p95"), row.run_histogram),
    ):
        yield Fact(label, pair_text(histogram))


def _facts(admin: DatabaseAdmin[Any], request: HttpRequest, name: str) -> Iterator[Fact]:
    """Yield who has paused it, and the limits of its jobs."""
    site = admin.admin_site
    pauses = paused(site, request, admin.database)
    if pauses.everything:
        yield Fact(_("Paused"), pauses.everything)
    if name in pauses.queues:
        yield Fact(_("Paused"), pauses.queues[name])
    for limit in Limit.objects.using(admin.database).filter(pk__in=[f"queue:{name}", "*"]).order_by("-pk"):
        yield Fact(_("Limit"), linked(page_url(site, request, Limit, "change", limit.pk), limit_text(limit)))


def _worker_row(admin: DatabaseAdmin[Any], request: HttpRequest, worker: Any) -> dict[str, Any]:
    return {
        "worker": linked(page_url(admin.admin_site, request, Worker, "change", worker.pk), str(worker)),
        "queues": queues_text(worker),
        "busy": busy_text(worker),
        "badge": state_badge(worker),
        "age": display.period(worker.age),
    }


def _task_row(admin: DatabaseAdmin[Any], request: HttpRequest, row: Any, attempts: int) -> dict[str, Any]:
    site = admin.admin_site
    url = task_url(site, request, row.task_path)
    return {
        "task": linked(url, breakable(row.task_path)),
        "share": f"{100 * row.attempts / attempts:.0f} %" if attempts else "",
        "rate": rate_text(per_second([row])),
        "failed": display.number(row.failed),
        "errors": share_text(error_rate(row)),
        "ran": percentile_text(row.run_histogram, 0.95),
    }


def _links(admin: DatabaseAdmin[Any], request: HttpRequest, name: str, jobs: str) -> Iterator[dict[str, Any]]:
    if jobs:
        yield {"label": _("Jobs of this queue"), "url": f"{jobs}?{urlencode({'queue': name})}"}
    if tasks := page_url(admin.admin_site, request, JobStat, "changelist"):
        yield {"label": _("Tasks of this queue"), "url": f"{tasks}?{urlencode({'queue': name})}"}
    if pause := page_url(admin.admin_site, request, Pause, "add"):
        yield {"label": _("Pause"), "url": f"{pause}?{urlencode({'kind': 'queue', 'name': name})}"}
