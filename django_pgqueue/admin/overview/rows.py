"""The rows of the overview: queues and workers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from django.utils.translation import gettext as _
from django.utils.translation import pgettext

from ... import formatting
from ...formatting import age, throughput
from ...models import Job, Limit, Queue, Worker
from ...monitoring.health import PATIENCE, thresholds_of
from ...monitoring.queues import Depth
from ...monitoring.spans import per_second
from ...monitoring.workers import Vital, busy_text, queues_text
from ...postgres.timeout import within
from .. import display
from ..charts import gauge
from ..display import page_url
from ..workers.fleet import state_badge
from .tiles import count_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from django.contrib.admin import AdminSite
    from django.http import HttpRequest

    from ...monitoring.health import State
    from ...monitoring.spans import Figures
    from ...monitoring.workers import Crew
    from ..paused import Paused


@dataclass(frozen=True, slots=True)
class Cell:
    """One figure, with a link to its jobs if the list of jobs can show them."""

    text: str
    url: str = ""
    alarm: bool = False
    more: str = ""


@dataclass(slots=True)
class QueueRow:
    """One queue."""

    name: str
    url: str
    workers: Cell
    oldest: Cell
    """How long its oldest ready job has been due."""
    oldest_bar: str
    cells: dict[str, Cell] = field(default_factory=dict)
    is_paused: bool = False
    paused: str = ""
    """By whom and why, if this queue itself is paused."""


def queue_rows(
    site: AdminSite,
    request: HttpRequest,
    state: State,
    settings: Iterable[str],
    hour: Mapping[str, Figures],
    day: Mapping[str, Figures],
    pauses: Paused,
) -> list[QueueRow]:
    """Return the queues that have ``settings``, thresholds or live jobs, or that ran jobs within a day."""
    found = state.depths or {}
    names = {*found, *hour, *day, *settings}
    jobs = page_url(site, request, Job, "changelist")
    rows = []
    for name in sorted(names):
        depth = found.get(name, Depth(name))
        row = _queue_row(depth, state.crew)
        row.url = page_url(site, request, Queue, "change", name) or _queue_jobs_url(jobs, name)
        row.cells = {
            **_live_cells(depth, (state.lost or {}).get(name, 0), jobs),
            **_past_cells(hour.get(name), day.get(name), name, jobs),
        }
        row.is_paused, row.paused = depth.is_paused, pauses.queues.get(name, "")
        rows.append(row)
    return rows


def _queue_row(depth: Depth, crew: Crew | None) -> QueueRow:
    limit = thresholds_of(depth.queue_name).age
    serving = crew.serving(depth.queue_name) if crew else 0
    needed = depth.needs_workers and not depth.is_paused
    is_late = limit is not None and depth.oldest_ready > limit and not depth.is_paused
    unattended = crew is not None and needed and not serving
    text = display.number(serving) if serving else pgettext("workers", "none")
    return QueueRow(
        depth.queue_name,
        "",
        Cell("?" if crew is None else text, alarm=unattended),
        Cell(
            age(depth.oldest_ready) if depth.ready else "",
            alarm=is_late or (unattended and bool(depth.ready)),
        ),
        gauge(depth.oldest_ready / (limit or 300), alarm=is_late) if depth.ready else "",
    )


def _live_cells(depth: Depth, lost: int, jobs: str) -> dict[str, Cell]:
    name = depth.queue_name
    longest = age(depth.longest_running) if depth.running else ""
    return {
        "ready": Cell(
            count_text(depth.ready), _queue_jobs_url(jobs, name, status="pending") if depth.ready else ""
        ),
        "scheduled": Cell(count_text(depth.scheduled)),
        "retrying": Cell(
            count_text(depth.retrying), _queue_jobs_url(jobs, name, status="retry") if depth.retrying else ""
        ),
        "blocked": _linked(depth.blocked, jobs, name, status="blocked"),
        "running": _linked(depth.running, jobs, name, status="running"),
        "lost": Cell(_("%(count)s lost") % {"count": display.number(lost)} if lost else "", alarm=True),
        "longest": Cell(longest),
    }


def _past_cells(hour: Figures | None, day: Figures | None, name: str, jobs: str) -> dict[str, Cell]:
    hour_failed, day_failed = hour.failed if hour else 0, day.failed if day else 0
    return {
        "rate": Cell(throughput(per_second([hour])) if hour else ""),
        "done_hour": _linked(hour.done if hour else 0, jobs, name, status="done", finished="hour"),
        "retried_hour": Cell(display.number(hour.retried if hour else 0)),
        "failed_hour": _failures(hour_failed, jobs, name, "hour"),
        "retried_day": Cell(display.number(day.retried if day else 0)),
        "failed_day": _failures(day_failed, jobs, name, "day"),
    }


def _failures(count: int, jobs: str, name: str, when: str) -> Cell:
    found = _linked(count, jobs, name, status="failed", finished=when)
    return Cell(found.text, found.url, alarm=bool(count))


def _linked(count: int, jobs: str, name: str, **filters: str) -> Cell:
    return Cell(display.number(count), _queue_jobs_url(jobs, name, **filters) if count else "")


def _queue_jobs_url(jobs: str, name: str, **filters: str) -> str:
    return f"{jobs}?{urlencode({'queue': name, **filters})}" if jobs else ""


def worker_rows(site: AdminSite, request: HttpRequest, workers: list[Any]) -> list[dict[str, Any]]:
    """Return the workers of a ``Crew``."""
    return [
        {
            "worker": worker,
            "url": page_url(site, request, Worker, "change", worker.pk),
            "queues": queues_text(worker),
            "busy": busy_text(worker),
            "bar": gauge(worker.busy / worker.slots if worker.slots else 0),
            "badge": state_badge(worker),
            "beat": display.timed(
                _("%(period)s ago") % {"period": display.period(worker.age)}, worker.heartbeat_at
            ),
            "alarm": worker.vital in {Vital.SILENT, Vital.DEAD},
        }
        for worker in workers
    ]


# ----------------------------------------------------------------------------
# The limits of queues on the overview, in short form: how many jobs run of those that may, and the rate.

_ALL = "*"


def add_limits(
    site: AdminSite, request: HttpRequest, state: State, rows: Sequence[QueueRow]
) -> tuple[Cell | None, bool]:
    """Add its limit to each row. Return the limit of all queues, and whether they were read in time."""
    names = [_ALL, *(f"queue:{row.name}" for row in rows)]
    alias = state.alias
    found = within(alias, PATIENCE, lambda: Limit.objects.using(alias).in_bulk(names))
    if found is None:
        return None, False
    depths = state.depths or {}

    def cell(limit: Limit, running: int) -> Cell:
        return Cell(_in_short(limit, running), page_url(site, request, Limit, "change", limit.pk))

    for row in rows:
        if limit := found.get(f"queue:{row.name}"):
            row.cells["limit"] = cell(limit, depths[row.name].running if row.name in depths else 0)
    every = found.get(_ALL)
    if every is None:
        return None, True
    return cell(every, sum(depth.running for depth in depths.values())), True


def _in_short(limit: Limit, running: int) -> str:
    parts = []
    if limit.concurrency is not None:
        numbers = {"running": display.number(running), "allowed": display.number(limit.concurrency)}
        parts.append(_("%(running)s of %(allowed)s run") % numbers)
    if limit.rate is not None and limit.per is not None:
        parts.append(_("at most %(rate)s") % {"rate": formatting.rate(limit.rate, limit.per)})
    return ", ".join(parts)
