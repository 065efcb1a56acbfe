"""What can be done with a schedule in the admin: pause, resume, run now, back to what the code declares.

Each action says in a sentence what it would do with a schedule, for the confirmation page. It acts with
the public functions, or with the model's own ``save()``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.contrib.admin.models import CHANGE, LogEntry
from django.db import transaction
from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext_lazy

from ... import formatting
from ...exceptions import InvalidKey, JobExists
from ...explanation import schedules as words
from ...models import Schedule
from ...schedules.policy import problem_of
from ..ask import RowEffect, about
from ..history import action_words
from .page import call_text, field_label, value_text


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleAction:
    """An action on schedules. ``permission`` is the codename without the model."""

    permission: str
    label: Any
    title: Any
    effect: Callable[[Any], RowEffect]
    """What the action would do with a schedule. The database decides it again."""
    run: Callable[[Schedule, str, str], bool]
    """Act on a schedule, with the author and the reason. Return whether it has changed."""
    done: Any
    undone: Any = ""
    asks_for_reason: bool = False

    def __call__(self, request: HttpRequest, alias: str, found: Sequence[Schedule], reason: str) -> int:
        """Act on schedules. Return how many have changed."""
        author, changed = request.user.get_username(), []
        for row in found:
            with suppress(Schedule.DoesNotExist):  # it was deleted in the meantime
                if self.run(Schedule.objects.using(alias).get(pk=row.pk), author, reason):
                    changed.append(row)
        message = action_words(self.label)
        if reason:
            message += " " + _("Reason: %(reason)s") % {"reason": reason}
        LogEntry.objects.log_actions(request.user.pk, changed, CHANGE, change_message=message)  # type: ignore[arg-type]
        return len(changed)

    def outcome(self, changed: int) -> str:
        """Return the message for the user."""
        values = {"count": changed, "number": formatting.number(changed)}
        return str(self.done % values if changed else self.undone or _("No schedule changed."))


def _run(schedule: Schedule, _author: str, _reason: str) -> bool:
    """Run it, unless it is retired by now. Return whether there is a new job, or one with new arguments."""
    alias = schedule._state.db
    with transaction.atomic(using=alias):
        locked = Schedule.objects.using(alias).select_for_update(no_key=True)
        if not locked.filter(pk=schedule.pk, retired_at__isnull=True).exists():
            return False
        try:
            job = schedule.enqueue()
        except (JobExists, InvalidKey):  # the page says which
            return False
    return job.enqueue_outcome != "existing"


def _restore(schedule: Schedule, _author: str, _reason: str) -> bool:
    """Take the declared values back.

    Race: a worker that starts may write a new declaration at this moment, so the row is locked first.
    """
    alias = schedule._state.db
    with transaction.atomic(using=alias):
        locked = Schedule.objects.using(alias).select_for_update(no_key=True)
        found = locked.filter(pk=schedule.pk).first()
        if found is None or not found.overridden:
            return False
        for field, value in (found.declared or {}).items():
            is_length = field in {"every", "jitter"} and value is not None
            setattr(found, field, timedelta(seconds=value) if is_length else value)
        found.save(using=alias)
    return True


def _would_pause(schedule: Any) -> RowEffect:
    text = _("{name} would not run until it is resumed.")
    if schedule.paused_at is not None:
        text = _("{name} is already paused.")
    elif schedule.retired_at is not None:
        text = _("{name} is retired and does not run.")
    return RowEffect(about(schedule.pk, text), schedule.is_active)


def _would_resume(schedule: Any) -> RowEffect:
    if schedule.paused_at is None:
        return RowEffect(about(schedule.pk, _("{name} is not paused.")), acts=False)
    if schedule.retired_at is not None:
        text = _("{name} would not be paused any more, but it is retired and does not run.")
        return RowEffect(about(schedule.pk, text))
    try:
        [run] = words.next_runs(schedule, 1)
    except ValueError as error:
        return RowEffect(about(schedule.pk, "{name}: {problem}", problem=error))
    text = _("{name} would run next in {period}. What it has missed since the pause would not run.")
    return RowEffect(about(schedule.pk, text, period=formatting.period(run - schedule.now)))


def _would_run(schedule: Any) -> RowEffect:
    if schedule.retired_at is not None:
        return RowEffect(about(schedule.pk, _("{name} is retired and does not change.")), acts=False)
    if problem := problem_of(schedule):
        text = _("{name} cannot run: {problem}")
        return RowEffect(about(schedule.pk, text, problem=problem), acts=False)
    text = _("{name} would enqueue one job now, besides its next run: {call}")
    if schedule.paused_at is not None:
        text = _("{name} would enqueue one job now, although it is paused: {call}")
    return RowEffect(about(schedule.pk, text, call=call_text(schedule)))


def _would_restore(schedule: Any) -> RowEffect:
    if not schedule.overridden:
        text = _("{name} does not differ from what is declared.")
        return RowEffect(about(schedule.pk, text), acts=False)
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
    return RowEffect(about(schedule.pk, text, changes="; ".join(changes)))


#: Each action by its name, the end of its URL.
ACTIONS = {
    "pause": ScheduleAction(
        permission="pause",
        label=gettext_lazy("Pause"),
        title=gettext_lazy("Pause schedules"),
        effect=_would_pause,
        run=lambda schedule, author, reason: schedule.pause(reason=reason, author=author),
        done=ngettext_lazy("%(number)s schedule is paused.", "%(number)s schedules are paused.", "count"),
        asks_for_reason=True,
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
