"""The four tiles of the overview: what is ready, what runs, how fast, and what fails. Each has a small line
of the last hour.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from django.utils.translation import gettext as _

from ...formatting import age, throughput
from ...models import Job, JobStat
from ...monitoring.queues import MOST
from .. import display
from ..charts import sparkline
from ..display import page_url

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django.contrib.admin import AdminSite
    from django.http import HttpRequest

    from ...monitoring.health import State
    from ...monitoring.spans import Figures

_UNKNOWN = "?"


@dataclass(frozen=True, slots=True)
class Tile:
    """One tile."""

    label: str
    value: str
    note: str
    url: str
    line: str
    """The small line, as SVG."""
    line_label: str
    alarm: bool = False


def tiles(site: AdminSite, request: HttpRequest, state: State) -> list[Tile]:
    """Return the tiles. A figure that could not be read in time is a question mark."""
    jobs = page_url(site, request, Job, "changelist")
    minutes = state.hour[:-1]  # the last one is not over
    return [
        _ready(state, minutes, _jobs_url(jobs, status="pending")),
        _running(state, minutes, _jobs_url(jobs, status="running")),
        _finished(state, minutes, page_url(site, request, JobStat, "changelist")),
        _failed(state, minutes, _jobs_url(jobs, status="failed", finished="hour")),
    ]


def count_text(count: int) -> str:
    """Return a count of waiting jobs, which is an estimate beyond a limit."""
    text = display.number(count)
    return text if count < MOST else _("about %(count)s") % {"count": text}


def _jobs_url(jobs: str, **filters: str) -> str:
    return f"{jobs}?{urlencode(filters)}" if jobs else ""


def _ready(state: State, minutes: Sequence[Figures], url: str) -> Tile:
    value, note = _UNKNOWN, ""
    if state.depths is not None:
        open_ = [depth for depth in state.depths.values() if not depth.is_paused]
        ready = sum(depth.ready for depth in open_)
        held = sum(depth.ready for depth in state.depths.values()) - ready
        oldest = max((depth.oldest_ready for depth in open_), default=0.0)
        value = count_text(ready)
        note = _("the oldest waits %(age)s") % {"age": age(oldest)} if ready else _("nothing waits")
        if held:
            more = _("%(count)s in paused queues") % {"count": count_text(held)}
            note = _("%(note)s; %(more)s") % {"note": note, "more": more}
    line = sparkline([each.waited(0.95) for each in minutes], "second")
    return Tile(_("Ready"), value, note, url, line, _("how long jobs waited, p95"))


def _running(state: State, minutes: Sequence[Figures], url: str) -> Tile:
    value, note = _UNKNOWN, ""
    if state.crew is not None:
        value = display.number(state.crew.busy)
        note = _("of %(slots)s slots") % {"slots": display.number(state.crew.slots)}
    line = sparkline([each.run_seconds for each in minutes])
    return Tile(_("Running"), value, note, url, line, _("busy slots"))


def _finished(state: State, minutes: Sequence[Figures], url: str) -> Tile:
    value = _UNKNOWN if state.minutes is None else display.number(round(60 * state.per_second))
    line = sparkline([each.attempts for each in minutes])
    note = "" if state.minutes is None else throughput(state.per_second)
    return Tile(_("Finished a minute"), value, note, url, line, _("attempts that ended"))


def _failed(state: State, minutes: Sequence[Figures], url: str) -> Tile:
    value, note = _UNKNOWN, ""
    now, before = state.failed
    if state.minutes is not None:
        value = display.number(now)
        note = _("%(count)s in the hour before") % {"count": display.number(before)}
    line = sparkline([each.failed for each in minutes], "alarm")
    return Tile(_("Failed in the last hour"), value, note, url, line, _("failures"), alarm=now > before)
