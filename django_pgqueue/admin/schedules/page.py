"""How a schedule is shown in words, and the top of its page: its state, and tables of its next runs, its last
runs, and what the admin overrides.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.contrib.admin import AdminSite
from django.http import HttpRequest
from django.utils.html import format_html, format_html_join
from django.utils.text import Truncator, capfirst
from django.utils.translation import gettext as _, pgettext

from ...explanation import schedules as words
from ...formatting import how_soon, local
from ...models import Job, Schedule
from ...redaction import redact_call
from ...schedules.cron import zone
from .. import display
from ..console import absent_text, page_url, visible_jobs
from ..display import breakable, linked
from ..job_page.formatter import Section

NEXT_RUNS = 5
LAST_RUNS = 20


def state_badge(schedule: Schedule) -> str:
    """Format the state of a schedule."""
    return display.badge(*words.state(schedule))


def state_text(schedule: Schedule, most: int | None = None) -> str:
    """Format why and since when a schedule does not run; empty if it is active. ``most``: how many characters
    of the reason are shown.
    """
    since = schedule.retired_at or schedule.paused_at
    if since is None:
        return ""
    note = words.state_note(schedule)
    parts = [
        display.filled(_("since %(time)s"), time=display.time(since)),
        note if most is None else Truncator(note).chars(most),
    ]
    between = ". " if schedule.retired_at is not None else ", "
    return format_html_join(between, "{}", ((part,) for part in parts if part))


def call_text(schedule: Any) -> str:
    """Return the task, with its arguments if the user may view them (``shows_arguments``)."""
    return words.call(schedule) if schedule.shows_arguments else str(schedule.task_path)


def next_run(schedule: Any) -> tuple[str, str]:
    """Format how soon a schedule runs, and when; both empty if it does not. A run that is due and that no
    worker has noticed is marked.
    """
    if not schedule.is_active:
        return "", ""
    try:
        [run] = words.next_runs(schedule, 1)
    except ValueError as error:
        alarm = '<strong class="pgqueue-alarm" title="{}">{}</strong>'
        return format_html(alarm, str(error), _("cannot run")), ""
    soon = how_soon(run - schedule.now)
    if words.is_late(schedule):
        soon = display.alarm(soon)
    return soon, display.time(run)


def outcome_text(run: Any) -> str:
    """Format what came of a run."""
    return breakable(str(run.get_outcome_display()))


def overridden(schedule: Any) -> list[tuple[str, ...]]:
    """Return what each field is called that the admin overrides, its value here, and the declared one."""
    both = vars(schedule), schedule.declared or {}
    return [
        (
            str(Schedule._meta.get_field(name).verbose_name),  # type: ignore[union-attr]
            *(value_text(values.get(name), name, schedule) for values in both),
        )
        for name in words.changes(schedule)
    ]


def value_text(value: Any, field: str, schedule: Any) -> str:
    """Format a value of a definition, redacted; "…" for arguments that the user may not view. Declared values
    are JSON, in which durations are seconds.
    """
    task_path = schedule.task_path
    if field in {"args", "kwargs"} and not schedule.shows_arguments:
        return "…"
    if value is None or value == "":
        return pgettext("value", "empty")
    if field == "args" and isinstance(value, list):
        value = redact_call(value, {}, task_path)[0]
    elif field == "kwargs" and isinstance(value, dict):
        value = redact_call([], value, task_path)[1]
    if field in {"every", "jitter"}:
        return str(value if isinstance(value, timedelta) else timedelta(seconds=value))
    return value if isinstance(value, str) else repr(value)


def summary(site: AdminSite, request: HttpRequest, alias: str, schedule: Any) -> dict[str, Any]:
    """Return the context of the top of the page, for a schedule ``with_clock``."""
    problem, tables = "", []
    if rows := [(capfirst(label), *values) for label, *values in overridden(schedule)]:
        heads = (_("Field"), _("here"), _("declared"))
        tables.append(Section(_("Changed in the admin"), heads, rows, id="pgqueue-overridden"))
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


def _next_runs(schedule: Any) -> Section:
    """Return the next runs in the viewer's time zone, and in that of the schedule if its clock differs. What
    the clock of the browser is, only ``times.js`` knows, so it shows the second column then.

    Raise ValueError if it cannot run.
    """
    own = zone(schedule.timezone)
    runs = [(local(run), run.astimezone(own)) for run in words.next_runs(schedule, NEXT_RUNS)]
    differs = any(here.replace(tzinfo=None) != there.replace(tzinfo=None) for here, there in runs)
    rows: list[tuple[Any, ...]] = [
        (display.time(here), display.zone_time(there), how_soon(here - schedule.now)) for here, there in runs
    ]
    if rows and words.is_late(schedule):
        rows[0] = (*rows[0][:-1], display.alarm(rows[0][-1]))
    here_name = format_html("<span data-pgqueue-zone-name>{}</span>", display.zone_name())
    caption = _("Next runs") if schedule.is_active else _("Next runs, if it were active")
    heads = (here_name, schedule.timezone, _("how soon"))
    return Section(caption, heads, rows, id="pgqueue-runs", hidden=None if differs else 1)


def _last_runs(site: AdminSite, request: HttpRequest, alias: str, schedule: Schedule) -> Section:
    """Return the last runs. Their jobs are read only for users who may view them."""
    runs = words.last_runs(alias, schedule, LAST_RUNS)
    shows_jobs = bool(page_url(site, request, Job, "changelist"))
    keys = [run.job_id for run in runs if run.job_id is not None]
    jobs = visible_jobs(site, request, alias).only("pk", "status").in_bulk(keys) if shows_jobs else {}
    absent = absent_text(site, request)
    columns, rows = 4 if shows_jobs else 3, []
    for run in runs:
        link, status = ("-", "-") if run.job_id is None else (str(run.job_id), absent)
        if job := jobs.get(run.job_id):
            link = linked(page_url(site, request, Job, "change", job.pk), link)
            status = display.status_badge(job.status)
        rows.append((display.time(run.run_at), outcome_text(run), link, status)[:columns])
    return Section(
        _("Last runs"),
        (_("Run"), _("outcome"), _("job"), _("status"))[:columns],
        rows,
        id="pgqueue-last-runs",
        empty=_("It has not been due yet."),
        note=_("Older runs are not shown here.") if len(runs) == LAST_RUNS else "",
    )
