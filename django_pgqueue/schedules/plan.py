"""What a round makes of a schedule that is due: which of its ticks have passed, and which one comes next.

Nothing here knows the database. If the timing has been edited since the last round, the ticks of the old
timing until the edit count as well: the trigger (``sql/schedule_changed_v1.sql``) has noted it in the column
``owed``.
"""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from .cron import EPOCH, Timing, latest_ticks, next_tick

__all__ = ["PUNCTUAL", "Due", "Plan", "plan"]

#: A tick that is noticed later than this was missed: ``catch_up="skip"`` leaves it out.
PUNCTUAL = timedelta(minutes=1)


class Due(NamedTuple):
    """A schedule that is due, as the look returns it. Times are microseconds: the session reads text."""

    name: str
    version: str
    cron: str | None
    every: int | None
    timezone: str
    catch_up: str
    catch_up_limit: int
    next_tick: int | None
    last_tick: int | None
    since: int | None
    now: int
    owed: str | None
    """The timings before the present one, as JSON; None: nothing is owed to them."""
    call: str | None
    """The task and the arguments, as JSON, if the row has no policy for them; None: it has."""


class Plan(NamedTuple):
    """What the round makes of a schedule that is due."""

    name: str
    version: str
    next_tick: datetime
    ticks: list[datetime]
    """The ticks that have passed and are to run, the oldest first."""
    is_missed: bool
    """Whether the ticks are only recorded, because nobody was there in time."""
    policy: str | None = None
    """The policy of the task, as JSON, if it was computed anew; None: the row has it, or nobody here knows
    it."""


def plan(due: Due) -> Plan:
    """Decide what to do with a schedule that is due. Raise ValueError if its timing cannot be computed."""
    timing = _timing(due.cron, due.every, due.timezone)
    now, expected, last = _moment(due.now), _time(due.next_tick), _time(due.last_tick)
    limit = due.catch_up_limit if due.catch_up == "all" else 1
    floor = max(last or EPOCH, expected or EPOCH)  # what was before is done
    ticks = _owed(due.owed, floor, limit)
    start = max(floor, _time(due.since) or EPOCH)
    upcoming = expected if expected is not None and expected > now else next_tick(timing, start)
    if upcoming <= now:
        ticks += latest_ticks(timing, start, now, limit)
        upcoming = next_tick(timing, now)
    # What was expected counts even if the timing has changed since.
    if expected is not None and expected <= now and (last is None or expected > last):
        ticks.insert(0, expected)
    ticks = ticks[-limit:]
    is_missed = due.catch_up == "skip" and bool(ticks) and now - ticks[-1] > PUNCTUAL
    return Plan(due.name, due.version, upcoming, ticks, is_missed)


def _owed(old: str | None, floor: datetime, limit: int) -> list[datetime]:
    """Return the last ticks of the timings before the present one, each until it was edited."""
    ticks: list[datetime] = []
    for period in json.loads(old or "[]"):
        start, until = max(floor, _time(period["since"]) or EPOCH), _moment(period["until"])
        with suppress(ValueError, OverflowError):  # it was wrong, so it was edited
            ticks += latest_ticks(
                _timing(period["cron"], period["every"], period["timezone"]), start, until, limit
            )
    return ticks


def _timing(cron: str | None, every: int | None, timezone: str) -> Timing:
    return Timing(cron, None if every is None else timedelta(microseconds=every), timezone)


def _time(microseconds: Any) -> datetime | None:
    return None if microseconds is None else _moment(microseconds)


def _moment(microseconds: int) -> datetime:
    return EPOCH + timedelta(microseconds=microseconds)
