"""The columns of the list of schedules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.utils.html import format_html, format_html_join
from django.utils.text import Truncator
from django.utils.translation import gettext_lazy as _

from ...models import Schedule
from ...schedules import words
from ...schedules import words as board
from .. import display
from ..ask import may_with_jobs
from ..base import DatabaseAdmin
from ..jobs.texts import breakable

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from django.http import HttpRequest

_MOST_OF_CALL = 80


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
        display.filled(str(_("since %(time)s")), time=display.time(since)),
        note if most is None else Truncator(note).chars(most),
    ]
    between = ". " if schedule.retired_at is not None else ", "
    return format_html_join(between, "{}", ((part,) for part in parts if part))


def call_text(schedule: Any) -> str:
    """Return the task, with its arguments if the user may view them (``for_user``)."""
    return words.call(schedule) if getattr(schedule, "shows_arguments", False) else str(schedule.task_path)


def how_soon(moment: datetime, now: datetime) -> str:
    """Format the time until a run, or how long it has been due."""
    if moment > now:
        return str(_("in %(period)s") % {"period": display.period(moment - now)})
    return str(_("due for %(period)s") % {"period": display.period(now - moment)})


def outcome(run: Any) -> str:
    """Format what came of a run."""
    return breakable(str(run.get_outcome_display()))


def _more(text: Any) -> str:
    return format_html('<span class="pgqueue-more">{}</span>', text) if text else ""


class ScheduleFields(DatabaseAdmin[Schedule]):
    """The part of ``ScheduleAdmin`` with the columns. Its rows are those of ``board.with_clock``."""

    def has_view_arguments_permission(self, request: HttpRequest) -> bool:
        """Return whether this user may view the arguments of schedules: who may view those of jobs."""
        return may_with_jobs(self.admin_site, request, "view_arguments")

    def for_user(self, request: HttpRequest, schedules: Iterable[Any]) -> None:
        """Let rows know whether this user may view their arguments."""
        full = self.has_view_arguments_permission(request)
        for schedule in schedules:
            schedule.shows_arguments = full

    @admin.display(description=_("schedule"), ordering="name")
    def named(self, schedule: Schedule) -> str:
        """The name, and below it the task with its arguments. The name is often the path of the task."""
        call = call_text(schedule)
        if schedule.name == schedule.task_path:
            call = call.removeprefix(schedule.name).removesuffix("()")
        more = _more(breakable(Truncator(call).chars(_MOST_OF_CALL)))
        return format_html("{}{}", breakable(schedule.name), more)

    @admin.display(description=_("when"))
    def when(self, schedule: Schedule) -> str:
        """When it runs in plain language, and below it the cron expression and its time zone."""
        cron = "" if schedule.cron is None else f"{schedule.cron}, {schedule.timezone}"
        return format_html("{}{}", words.timing(schedule), _more(breakable(cron)))

    @admin.display(description=_("state"))
    def state_now(self, schedule: Schedule) -> str:
        """Whether it runs, and why not."""
        return format_html("{}{}", state_badge(schedule), _more(state_text(schedule, 95)))

    @admin.display(description=_("next run"), ordering="next_run_at")
    def next_run(self, schedule: Any) -> str:
        """How soon, and when. A run that is due and that no worker has noticed is marked."""
        if not schedule.is_active:
            return str(self.get_empty_value_display())
        try:
            [run] = board.next_runs(schedule, 1)
        except ValueError as error:
            alarm = '<strong class="pgqueue-alarm" title="{}">{}</strong>'
            return format_html(alarm, str(error), _("cannot run"))
        soon = how_soon(run, schedule.now)
        if board.is_late(schedule):
            soon = format_html('<strong class="pgqueue-alarm">{}</strong>', soon)
        return format_html("{}{}", soon, _more(display.time(run)))

    @admin.display(description=_("last run"), ordering="last_run_at")
    def last_run(self, schedule: Any) -> str:
        """What came of its last run, and when that was."""
        if schedule.last is None:
            return str(self.get_empty_value_display())
        return format_html("{}{}", outcome(schedule.last), _more(display.time(schedule.last.run_at)))

    @admin.display(description=_("declared in"), ordering="source")
    def declared_in(self, schedule: Schedule) -> str:
        """Who declares it, and which fields the admin overrides."""
        changed = [str(Schedule._meta.get_field(name).verbose_name) for name in words.changes(schedule)]  # type: ignore[union-attr]
        here = _("changed here: %(fields)s") % {"fields": ", ".join(changed)} if changed else ""
        return format_html("{}{}", breakable(words.origin(schedule)), _more(here))
