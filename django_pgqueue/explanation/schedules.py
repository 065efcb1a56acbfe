"""Schedules in plain language: "Every 5 minutes", "At 03:00 every day", "paused by anna: the bank is closed".

cronsim explains most cron expressions, in English only. The frequent ones, intervals and states are texts of
our own, which can be translated.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Any

from cronsim import CronSim, CronSimError
from django.db.models import OuterRef, QuerySet, Subquery
from django.db.models.functions import Now
from django.utils import timezone
from django.utils.translation import gettext as _, ngettext_lazy, pgettext, pgettext_lazy

from ..exceptions import moment
from ..models import Schedule, ScheduleRun
from ..postgres.clock import stored
from ..redaction import redact_call
from ..schedules import cron
from ..schedules.cron import expand
from ..schedules.policy import problem_of

_EVERY_MINUTES = re.compile(r"\*(?:/([1-9]\d?))? \* \* \* \*")
_EVERY_HOURS = re.compile(r"0 \*/([1-9]\d?) \* \* \*")
# cronsim adds "th" to every number above nine: "on the 21th day".
_ORDINAL = re.compile(r"\b([2-5])([123])th\b")
_ENDINGS = {"1": "st", "2": "nd", "3": "rd"}


def timing(schedule: Any) -> str:
    """Return when a schedule runs. A cron expression that is wrong is returned as it is."""
    if schedule.every is not None:
        return _interval(schedule.every)
    fields = " ".join(expand(schedule.cron or "").split())
    if fields == "0 * * * *":
        return _("Every hour, at minute 0")
    # "*/7" is not every 7 minutes, because each hour starts again with minute 0.
    if (found := _EVERY_MINUTES.fullmatch(fields)) and 60 % int(found[1] or 1) == 0:
        return _interval(timedelta(minutes=int(found[1] or 1)))
    if (found := _EVERY_HOURS.fullmatch(fields)) and 24 % int(found[1]) == 0:
        return _interval(timedelta(hours=int(found[1])))
    try:
        words = CronSim(fields, timezone.now()).explain()
    except CronSimError:
        return fields
    return _ORDINAL.sub(lambda found: f"{found[1]}{found[2]}{_ENDINGS[found[2]]}", words)


def call(schedule: Schedule) -> str:
    """Return the task with its arguments, redacted, as Python code."""
    given = schedule.args if isinstance(schedule.args, list) else []
    named = schedule.kwargs if isinstance(schedule.kwargs, dict) else {}
    shown, shown_by_name = redact_call(given, named, schedule.task_path)
    texts = [*map(repr, shown), *(f"{name}={value!r}" for name, value in shown_by_name.items())]
    return f"{schedule.task_path}({', '.join(texts)})"


def changes(schedule: Schedule) -> list[str]:
    """Return the names of the fields that the admin overrides.

    Cron and every are overridden together; the one that is empty in both places is left out.
    """
    declared, names = schedule.declared or {}, schedule.overridden
    return [name for name in names if (getattr(schedule, name), declared.get(name)) != (None, None)]


def state(schedule: Schedule) -> tuple[str, str]:
    """Return the state of a schedule as a key, which is not translated, and in words."""
    if schedule.retired_at is not None:
        return "retired", pgettext("schedule", "retired")
    if schedule.paused_at is not None:
        return "paused", pgettext("schedule", "paused")
    return "active", pgettext("schedule", "active")


def state_note(schedule: Schedule) -> str:
    """Return why a schedule does not run; empty if it is active."""
    if schedule.retired_at is not None:
        where = {
            "code": _("The code no longer declares it."),
            "settings": _("The settings no longer declare it."),
        }
        return where.get(schedule.source, _("It is no longer declared."))
    return pause_note(schedule)


def pause_note(schedule: Schedule) -> str:
    """Return who paused a schedule and why: "by anna: the bank is closed"; empty if it is not paused."""
    if schedule.paused_at is None:
        return ""
    who = _("by %(name)s") % {"name": schedule.pause_author} if schedule.pause_author else ""
    return ": ".join(filter(None, [who, schedule.pause_reason]))


def origin(schedule: Schedule) -> str:
    """Return where a schedule is declared: "code (shop.tasks)"."""
    label = str(schedule.get_source_display())
    return f"{label} ({schedule.declared_by})" if schedule.declared_by else label


_UNITS: tuple[tuple[int, Any, Any], ...] = (
    (86400, pgettext_lazy("interval", "Every day"),
     ngettext_lazy("%(count)d day", "%(count)d days", "count")),
    (3600, pgettext_lazy("interval", "Every hour"),
     ngettext_lazy("%(count)d hour", "%(count)d hours", "count")),
    (60, pgettext_lazy("interval", "Every minute"),
     ngettext_lazy("%(count)d minute", "%(count)d minutes", "count")),
    (1, pgettext_lazy("interval", "Every second"),
     ngettext_lazy("%(count)d second", "%(count)d seconds", "count")),
)  # fmt: skip


def _interval(every: timedelta) -> str:
    parts: list[str] = []
    rest = int(every.total_seconds())
    for seconds, single, words in _UNITS:
        count, rest = divmod(rest, seconds)
        if count == 1 and not parts and not rest:
            return str(single)
        if count:
            parts.append(str(words % {"count": count}))
    return _("Every %(length)s") % {"length": " ".join(parts)}


#: A run that has been due for so long, by the clock of the database, was not noticed by any worker.
LATE = timedelta(minutes=1)


def with_clock(schedules: QuerySet[Schedule]) -> QuerySet[Any]:
    """Annotate schedules with the time ``now`` and the key of their last run."""
    runs = ScheduleRun.objects.filter(schedule=OuterRef("pk")).order_by("-run_at")
    shown: QuerySet[Any] = schedules.annotate(now=Now(), last_key=Subquery(runs.values("pk")[:1]))
    return shown


def add_last_runs(alias: str, schedules: Collection[Any]) -> None:
    """Set ``last`` of schedules ``with_clock`` to their last run, or None, with one statement."""
    found = ScheduleRun.objects.using(alias).in_bulk([schedule.last_key for schedule in schedules])
    for schedule in schedules:
        schedule.last = found.get(schedule.last_key)


def last_runs(alias: str, schedule: Schedule, count: int) -> list[ScheduleRun]:
    """Return the last runs of a schedule, the latest first."""
    runs = ScheduleRun.objects.using(alias).filter(schedule=schedule.pk)
    return list(runs.order_by("-run_at")[:count])


def next_runs(schedule: Any, count: int) -> list[datetime]:
    """Return the next runs of a schedule ``with_clock``, as if it were active. Without ``USE_TZ`` they are
    naive, as its own times are.

    Raise ValueError if it cannot run: its timing is wrong, which only a change in SQL can cause, or the keys
    of its jobs cannot be computed.
    """
    if problem := problem_of(schedule):
        raise ValueError(problem)
    now, ahead = (time and moment("next_runs", time) for time in (schedule.now, schedule.next_run_at))
    if ahead is None or not schedule.is_active:
        runs = cron.next_runs(schedule, count, now)
    else:
        runs = [ahead, *cron.next_runs(schedule, count - 1, max(ahead, now))]
    return [stored(run) for run in runs]


def is_late(schedule: Any) -> bool:
    """Return whether a run of a schedule ``with_clock`` is due, but no worker has noticed it."""
    due = schedule.next_run_at
    return due is not None and schedule.is_active and schedule.now - due > LATE
