"""What can be done with a schedule in the admin: pause, resume, run now, back to what the code declares.

Each action says in a sentence what it would do with a schedule, for the confirmation page. It acts with
the public functions, or with the model's own ``save()``.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext_lazy

from ... import formatting
from ...exceptions import InvalidKey, JobExists
from ...explanation import schedules as words
from ...models import Schedule
from ...schedules.policy import problem_of
from ..ask import RowEffect, about
from .page import call_text, field_label, value_text


class ScheduleAction(NamedTuple):
    """An action on schedules, a ``RowAction``."""

    permission: str
    label: Any
    title: Any
    effect: Callable[[Any], RowEffect]
    """What the action would do with a schedule. The database decides it again."""
    run: Callable[[Schedule, str, str], bool]
    """Act on a locked schedule, with the author and the reason. Return whether it has changed."""
    done: Any
    undone: Any = gettext_lazy("No schedule changed.")


def _run(schedule: Schedule, _author: str, _reason: str) -> bool:
    """Run it, unless it is retired by now. Return whether there is a new job, or one with new arguments."""
    if schedule.retired_at is not None:
        return False
    try:
        return schedule.enqueue().enqueue_outcome != "existing"
    except (JobExists, InvalidKey):  # the page says which
        return False


def _restore(schedule: Schedule, _author: str, _reason: str) -> bool:
    """Take the declared values back."""
    if not schedule.overridden:
        return False
    for field, value in (schedule.declared or {}).items():
        is_length = field in {"every", "jitter"} and value is not None
        setattr(schedule, field, timedelta(seconds=value) if is_length else value)
    schedule.save()
    return True


def _would_pause(schedule: Any) -> RowEffect:
    text = _("{name} would not run until it is resumed.")
    if schedule.paused_at is not None:
        text = _("{name} is already paused.")
    elif schedule.retired_at is not None:
        text = _("{name} is retired and does not run.")
    return RowEffect(about(schedule, text), schedule.is_active)


def _would_resume(schedule: Any) -> RowEffect:
    if schedule.paused_at is None:
        return RowEffect(about(schedule, _("{name} is not paused.")), acts=False)
    if schedule.retired_at is not None:
        text = _("{name} would not be paused any more, but it is retired and does not run.")
        return RowEffect(about(schedule, text))
    try:
        [run] = words.next_runs(schedule, 1)
    except ValueError as error:
        return RowEffect(about(schedule, "{name}: {problem}", problem=error))
    text = _("{name} would run next in {period}. What it has missed since the pause would not run.")
    return RowEffect(about(schedule, text, period=formatting.period(run - schedule.now)))


def _would_run(schedule: Any) -> RowEffect:
    if schedule.retired_at is not None:
        return RowEffect(about(schedule, _("{name} is retired and does not change.")), acts=False)
    if problem := problem_of(schedule):
        text = _("{name} cannot run: {problem}")
        return RowEffect(about(schedule, text, problem=problem), acts=False)
    text = _("{name} would enqueue one job now, besides its next run: {call}")
    if schedule.paused_at is not None:
        text = _("{name} would enqueue one job now, although it is paused: {call}")
    return RowEffect(about(schedule, text, call=call_text(schedule)))


def _would_restore(schedule: Any) -> RowEffect:
    if not schedule.overridden:
        text = _("{name} does not differ from what is declared.")
        return RowEffect(about(schedule, text), acts=False)
    declared = schedule.declared or {}
    changes = [
        _("%(field)s: %(declared)s instead of %(here)s")
        % {
            "field": field_label(name),
            "declared": value_text(declared.get(name), name, schedule),
            "here": value_text(getattr(schedule, name), name, schedule),
        }
        for name in words.changes(schedule)
    ]
    text = _("{name} would be as declared again: {changes}.")
    return RowEffect(about(schedule, text, changes="; ".join(changes)))


#: Each action by its name, the end of its URL.
ACTIONS = {
    "pause": ScheduleAction(
        permission="pause",
        label=gettext_lazy("Pause"),
        title=gettext_lazy("Pause schedules"),
        effect=_would_pause,
        run=lambda schedule, author, reason: schedule.pause(reason=reason, author=author),
        done=ngettext_lazy("%(number)s schedule is paused.", "%(number)s schedules are paused.", "count"),
    ),
    "resume": ScheduleAction(
        permission="pause",
        label=gettext_lazy("Resume"),
        title=gettext_lazy("Resume schedules"),
        effect=_would_resume,
        run=lambda schedule, _author, _reason: schedule.resume(),
        done=ngettext_lazy("%(number)s schedule is resumed.", "%(number)s schedules are resumed.", "count"),
    ),
    "enqueue": ScheduleAction(
        permission="enqueue",
        label=gettext_lazy("Run now"),
        title=gettext_lazy("Run schedules now"),
        effect=_would_run,
        run=_run,
        done=ngettext_lazy(
            "%(number)s job is enqueued.", "%(number)s jobs are enqueued, one for each schedule.", "count"
        ),
        undone=gettext_lazy(
            "No job is enqueued: the schedule is retired, or another job has its unique key."
        ),
    ),
    "restore": ScheduleAction(
        permission="change",
        label=gettext_lazy("Back to what is declared"),
        title=gettext_lazy("Back to what is declared"),
        effect=_would_restore,
        run=_restore,
        done=ngettext_lazy(
            "%(number)s schedule is as declared again.",
            "%(number)s schedules are as declared again.",
            "count",
        ),
    ),
}
