"""What people see of schedules, in the admin and on the command line: the rows, their last and next ticks.

Times are relative to the clock of the database, which decides when a tick is due.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from django.db.models import OuterRef, Subquery
from django.db.models.functions import Now
from django.utils import timezone

from ..models import ScheduleTick
from . import cron
from .policy import problem_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from django.db.models import QuerySet

    from ..models import Schedule

__all__ = ["LATE", "add_last_ticks", "is_late", "last_ticks", "next_runs", "with_clock"]

#: A tick that has been due for so long was not noticed by any worker.
LATE = timedelta(minutes=1)


def with_clock(schedules: QuerySet[Schedule]) -> QuerySet[Any]:
    """Annotate schedules with the time ``now`` and the key of their last tick."""
    ticks = ScheduleTick.objects.filter(schedule=OuterRef("pk")).order_by("-tick")
    shown: QuerySet[Any] = schedules.annotate(now=Now(), last_key=Subquery(ticks.values("pk")[:1]))
    return shown


def add_last_ticks(alias: str, schedules: Iterable[Any]) -> None:
    """Set ``last`` of schedules ``with_clock`` to their last tick, or None, with one statement."""
    listed = list(schedules)
    keys = [schedule.last_key for schedule in listed if schedule.last_key is not None]
    found = ScheduleTick.objects.using(alias).in_bulk(keys) if keys else {}
    for schedule in listed:
        schedule.last = found.get(schedule.last_key)


def last_ticks(alias: str, schedule: Schedule, count: int) -> list[ScheduleTick]:
    """Return the last ticks of a schedule, the latest first."""
    ticks = ScheduleTick.objects.using(alias).filter(schedule=schedule.pk)
    return list(ticks.order_by("-tick")[:count])


def next_runs(schedule: Any, count: int) -> list[datetime]:
    """Return the next ticks of a schedule ``with_clock``, as if it were active. Without ``USE_TZ`` they are
    naive, as its own times are.

    Raise ValueError if it cannot run: its timing is wrong, which only a change in SQL can cause, or the keys
    of its jobs cannot be computed.
    """
    if problem := problem_of(schedule):
        raise ValueError(problem)
    if timezone.is_aware(schedule.now):
        return _next_runs(schedule, count, schedule.now, schedule.next_tick)
    now, ahead = (time and timezone.make_aware(time) for time in (schedule.now, schedule.next_tick))
    return [timezone.make_naive(run) for run in _next_runs(schedule, count, now, ahead)]


def _next_runs(schedule: Any, count: int, now: datetime, ahead: datetime | None) -> list[datetime]:
    if ahead is None or not schedule.is_active:
        return cron.next_runs(schedule, count, now)
    return [ahead, *cron.next_runs(schedule, count - 1, max(ahead, now))]


def is_late(schedule: Any) -> bool:
    """Return whether a tick of a schedule ``with_clock`` is due, but no worker has noticed it."""
    due = schedule.next_tick
    return due is not None and schedule.is_active and schedule.now - due > LATE
