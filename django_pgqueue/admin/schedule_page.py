"""The top of the page of a schedule: its state, its next runs, its last ticks, what the admin overrides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.utils import timezone

from ..models import Job, Schedule
from ..schedules import board, words
from ..schedules.cron import zone
from . import display
from .job_texts import breakable
from .links import page_url
from .schedule_actions import value_text
from .schedule_fields import how_soon, outcome, state_badge, state_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from django.contrib.admin import AdminSite
    from django.http import HttpRequest

    from ..models import ScheduleTick

__all__ = ["summary"]

NEXT_RUNS = 5
LAST_TICKS = 20


def summary(site: AdminSite, request: HttpRequest, alias: str, schedule: Any) -> dict[str, Any]:
    """Return the context for a schedule ``with_clock``."""
    ticks = board.last_ticks(alias, schedule, LAST_TICKS)
    return {
        "badge": state_badge(schedule),
        "note": state_text(schedule),
        "timing": words.timing(schedule),
        "cron": schedule.cron or "",
        "zone": schedule.timezone if schedule.cron else "",
        "call": breakable(words.call(schedule)),
        "origin": breakable(words.origin(schedule)),
        "is_active": schedule.is_active,
        "is_late": board.is_late(schedule),
        "overridden": [_overridden(schedule, name) for name in words.changes(schedule)],
        "ticks": _ticks(site, request, alias, ticks),
        "shows_jobs": bool(page_url(site, request, Job, "changelist")),
        "more_ticks": len(ticks) == LAST_TICKS,
        **_runs(schedule),
    }


def _runs(schedule: Any) -> dict[str, Any]:
    """Return the next runs in the viewer's time zone, and in that of the schedule if its clock differs."""
    try:
        moments = board.next_runs(schedule, NEXT_RUNS)
        own = zone(schedule.timezone)
    except ValueError as error:
        return {"problem": str(error)}
    runs = [(timezone.localtime(moment), moment.astimezone(own)) for moment in moments]
    return {
        "here": words.zone_name(),
        "there": schedule.timezone if any(a.utcoffset() != b.utcoffset() for a, b in runs) else "",
        "runs": [
            {
                "here": display.time(here),
                "there": f"{there:%Y-%m-%d %H:%M:%S}",
                "soon": how_soon(here, schedule.now),
            }
            for here, there in runs
        ],
    }


def _ticks(
    site: AdminSite, request: HttpRequest, alias: str, ticks: Iterable[ScheduleTick]
) -> list[dict[str, Any]]:
    """Return the rows of the table of ticks. Their jobs are read only for users who may view them."""
    ticks = list(ticks)
    jobs: dict[int, Job] = {}
    if page_url(site, request, Job, "changelist"):
        keys = [tick.job_id for tick in ticks if tick.job_id is not None]
        jobs = Job.objects.using(alias).only("pk", "status").in_bulk(keys)
    return [
        {
            "time": display.time(tick.tick),
            "outcome": outcome(tick),
            "job": tick.job_id,
            "url": page_url(site, request, Job, "change", tick.job_id) if tick.job_id in jobs else "",
            "badge": display.status_badge(jobs[tick.job_id].status) if tick.job_id in jobs else "",
        }
        for tick in ticks
    ]


def _overridden(schedule: Schedule, name: str) -> dict[str, str]:
    declared = schedule.declared or {}
    return {
        "field": str(Schedule._meta.get_field(name).verbose_name),  # type: ignore[union-attr]
        "declared": value_text(declared.get(name), name),
        "here": value_text(getattr(schedule, name), name),
    }
