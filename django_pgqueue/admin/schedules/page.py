"""The top of the page of a schedule: its state, and tables of its next runs, its last runs, and what the
admin overrides. The template shows all tables in the same way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from django.utils.html import format_html
from django.utils.text import capfirst
from django.utils.translation import gettext as _

from ...models import Job, Schedule
from ...postgres.clock import local
from ...schedules import words
from ...schedules import words as board
from ...schedules.cron import zone
from .. import display
from ..display import page_url
from ..jobs.texts import breakable
from ..visible import absent_text, visible_jobs
from .actions import value_text
from .fields import call_text, how_soon, outcome, state_badge, state_text

if TYPE_CHECKING:
    from django.contrib.admin import AdminSite
    from django.http import HttpRequest

    from ...models import ScheduleRun

NEXT_RUNS = 5
LAST_RUNS = 20


class Cell(NamedTuple):
    """A cell of a table."""

    text: Any
    css: str = ""
    is_hidden: bool = False
    """Whether it is shown only if the browser is in another time zone than the page."""


class Row(NamedTuple):
    """A row of a table."""

    head: Any
    cells: list[Cell]


class Table(NamedTuple):
    """A table as the template shows it."""

    id: str
    caption: str
    heads: list[Cell]
    rows: list[Row]
    empty: str = ""
    """What is shown in place of the rows."""
    note: str = ""
    """What is shown below the table."""


def summary(site: AdminSite, request: HttpRequest, alias: str, schedule: Any) -> dict[str, Any]:
    """Return the context for a schedule ``with_clock``."""
    problem, tables = "", []
    if changed := words.changes(schedule):
        tables.append(_overridden(schedule, changed))
    try:
        tables.append(_next_runs(schedule))
    except ValueError as error:
        problem = str(error)
    tables.append(_last_runs(site, request, alias, schedule))
    return {
        "badge": state_badge(schedule),
        "note": state_text(schedule),
        "timing": words.timing(schedule),
        "cron": schedule.cron or "",
        "zone": schedule.timezone if schedule.cron else "",
        "call": breakable(call_text(schedule)),
        "origin": breakable(words.origin(schedule)),
        "problem": problem,
        "tables": tables,
    }


def _overridden(schedule: Schedule, changed: list[str]) -> Table:
    declared = schedule.declared or {}
    rows = [
        Row(
            capfirst(str(Schedule._meta.get_field(name).verbose_name)),  # type: ignore[union-attr]
            [Cell(value_text(value.get(name), name, schedule)) for value in (vars(schedule), declared)],
        )
        for name in changed
    ]
    heads = [_("Field"), _("here"), _("declared")]
    return Table("pgqueue-overridden", _("Changed in the admin"), [*map(Cell, heads)], rows)


def _next_runs(schedule: Any) -> Table:
    """Return the next runs in the viewer's time zone, and in that of the schedule if its clock differs. What
    the clock of the browser is, only ``times.js`` knows, so it shows the second column then.

    Raise ValueError if it cannot run.
    """
    moments = board.next_runs(schedule, NEXT_RUNS)
    own = zone(schedule.timezone)
    runs = [(local(moment), moment.astimezone(own)) for moment in moments]
    differs = any(here.replace(tzinfo=None) != there.replace(tzinfo=None) for here, there in runs)
    is_late = board.is_late(schedule)
    rows = []
    for place, (here, there) in enumerate(runs):
        soon = Cell(how_soon(here, schedule.now), "pgqueue-alarm" if is_late and place == 0 else "")
        clock = Cell(display.zone_time(there), is_hidden=not differs)
        rows.append(Row(display.time(here), [clock, soon]))
    here_name = format_html("<span data-pgqueue-zone-name>{}</span>", display.zone_name())
    heads = [Cell(here_name), Cell(schedule.timezone, is_hidden=not differs), Cell(_("how soon"))]
    caption = _("Next runs") if schedule.is_active else _("Next runs, if it were active")
    return Table("pgqueue-runs", caption, heads, rows)


def _last_runs(site: AdminSite, request: HttpRequest, alias: str, schedule: Schedule) -> Table:
    """Return the last runs. Their jobs are read only for users who may view them."""
    runs = board.last_runs(alias, schedule, LAST_RUNS)
    shows_jobs = bool(page_url(site, request, Job, "changelist"))
    keys = [run.job_id for run in runs if run.job_id is not None]
    visible = visible_jobs(site, request, alias).only("pk", "status")
    jobs = visible.in_bulk(keys) if shows_jobs else {}
    absent = absent_text(site, request)
    rows = []
    for run in runs:
        cells = [Cell(outcome(run), "pgqueue-name"), Cell(_job(site, request, run, jobs))]
        rows.append(
            Row(
                display.time(run.run_at),
                [*cells, *([Cell(_status(run, jobs, absent))] if shows_jobs else [])],
            )
        )
    heads = [_("Run"), _("outcome"), _("job"), *([_("status")] if shows_jobs else [])]
    return Table(
        "pgqueue-last-runs",
        _("Last runs"),
        [*map(Cell, heads)],
        rows,
        empty=_("It has not been due yet."),
        note=_("Older runs are not shown here.") if len(runs) == LAST_RUNS else "",
    )


def _job(site: AdminSite, request: HttpRequest, run: ScheduleRun, jobs: dict[int, Job]) -> str:
    """Format the job of a run, as a link if it still exists."""
    if run.job_id is None:
        return "-"
    if run.job_id not in jobs:
        return str(run.job_id)
    return format_html(
        '<a href="{}">{}</a>', page_url(site, request, Job, "change", run.job_id), str(run.job_id)
    )


def _status(run: ScheduleRun, jobs: dict[int, Job], absent: str) -> str:
    """Format the status of the job of a run."""
    if run.job_id is None:
        return "-"
    job = jobs.get(run.job_id)
    return absent if job is None else display.status_badge(job.status)
