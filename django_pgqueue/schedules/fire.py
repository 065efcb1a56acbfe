"""The round that fires schedules: any supervisor may do it at any time.

    look:    read the schedules that are due, without a lock
    plan:    compute which of their ticks have passed, and the next one
    fire:    one function writes ticks and jobs and moves the schedules on, all or nothing

The heartbeat asks when to look next, so an installation without schedules sends no statement for them, and a
schedule that someone has just changed is noticed within a heartbeat. If several supervisors look at the same
moment, ``sql/fire_v1.sql`` lets one of them fire a tick. A schedule that cannot be computed is logged once
and left out until its row changes; it does not hold up the others.
"""

from __future__ import annotations

import logging
import random
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg

from ..session import LOST_CONNECTION
from .cron import EPOCH, Timing, latest_ticks, next_tick

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..session import Session

    Rows = Callable[[str, Any], list[Any]]

__all__ = ["NEXT_LOOK", "PUNCTUAL", "Firing", "due_plans", "fire_due", "fire_plans"]

logger = logging.getLogger(__name__)

#: A tick that is noticed later than this was missed: ``catch_up="skip"`` leaves it out.
PUNCTUAL = timedelta(minutes=1)
LOOK_LIMIT = 1_000  # schedules in one look
FIRE_LIMIT = 2_000  # ticks in one statement, as in ``enqueue_many``
SPREAD = 0.05  # seconds; not all supervisors look at the same moment
STUCK_PAUSE = 0.25  # seconds; the schedules that are due are locked by a transaction that edits them


def _microseconds(expression: str) -> str:
    return f"(extract(epoch FROM {expression}) * 1000000)::bigint"


_EPOCH = "timestamptz '1970-01-01 00:00:00+00'"
_ACTIVE = (
    "schedule.paused_at IS NULL AND schedule.retired_at IS NULL"
    " AND schedule.name || '/' || schedule.xmin::text <> ALL (%(broken)s::text[])"
)
#: An expression with the parameter ``broken``: the seconds until the next look, negative if it is overdue,
#: NULL if there is nothing to wait for. Ticks that wait for a job are looked at every second.
NEXT_LOOK = f"""(
    SELECT min(look.seconds) FROM (
        (SELECT date_part('epoch', coalesce(schedule.next_tick, {_EPOCH}) - clock_timestamp()) AS seconds
        FROM pgqueue_schedule AS schedule WHERE {_ACTIVE}
        ORDER BY coalesce(schedule.next_tick, {_EPOCH}) LIMIT 1)
        UNION ALL
        (SELECT 1.0 FROM pgqueue_schedule AS schedule WHERE schedule.waiting > 0 AND {_ACTIVE} LIMIT 1)
    ) AS look
)"""  # noqa: S608 - consists of constants

_DUE_SQL = f"""
    SELECT schedule.name, schedule.xmin::text, schedule.cron, {_microseconds("schedule.every")},
        schedule.timezone, schedule.catch_up, schedule.catch_up_limit,
        {_microseconds("schedule.next_tick")}, {_microseconds("schedule.last_tick")},
        {_microseconds("schedule.since")}, {_microseconds("statement_timestamp()")}
    FROM pgqueue_schedule AS schedule
    WHERE {_ACTIVE} AND (%(only)s::text IS NULL OR schedule.name = %(only)s) AND (
        coalesce(schedule.next_tick, {_EPOCH}) <= statement_timestamp()
        OR (schedule.waiting > 0
            AND NOT EXISTS (SELECT FROM pgqueue_job_live AS job WHERE job.id = ANY (schedule.live_jobs)))
    )
    ORDER BY coalesce(schedule.next_tick, {_EPOCH}), schedule.name LIMIT {LOOK_LIMIT}
"""  # noqa: S608 - consists of constants
_FIRE_SQL = (
    "SELECT pgqueue_fire_v1(%s::text[], %s::text[], %s::timestamptz[], %s::timestamptz[], %s::text[],"
    " %s::timestamptz[], %s::boolean[])"
)


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


class Plan(NamedTuple):
    """What the round makes of a schedule that is due."""

    name: str
    version: str
    next_tick: datetime
    ticks: list[datetime]
    """The ticks that have passed and are to run, the oldest first."""
    is_missed: bool
    """Whether the ticks are only recorded, because nobody was there in time."""


class Firing:
    """When this supervisor looks next, and which schedules it leaves out because they are broken."""

    def __init__(self) -> None:
        self.broken: dict[str, str] = {}
        """The versions of rows that cannot fire, by the name of the schedule."""
        self._next = float("inf")

    @property
    def next_round(self) -> float:
        """When ``run`` must be called next, by the monotonic clock."""
        return self._next

    @property
    def parameters(self) -> dict[str, list[str]]:
        """The parameters of `NEXT_LOOK`."""
        return {"broken": [f"{name}/{version}" for name, version in self.broken.items()]}

    def look_in(self, seconds: float | None, now: float) -> None:
        """Look then, or earlier if that was planned. None: there is nothing to look at."""
        if seconds is not None:
            self._next = min(self._next, now + max(0.0, seconds) + random.uniform(0.0, SPREAD))

    def run(self, session: Session, now: float) -> None:
        """Fire what is due, if it is time."""
        if now < self._next:
            return
        fired = fire_due(session.rows, self.broken)
        self._next = float("inf")
        seconds: float | None = session.value(f"SELECT {NEXT_LOOK}", self.parameters)
        if seconds is not None and seconds <= 0 and not fired:
            seconds = STUCK_PAUSE
        self.look_in(seconds, now)


def fire_due(rows: Rows, broken: dict[str, str], only: str | None = None) -> int:
    """Fire the schedules that are due, at most `LOOK_LIMIT`, or only this one. Return how many moved on.

    `rows` runs a statement and returns its rows. Schedules that cannot fire are logged and added to `broken`.
    """
    plans = due_plans(rows, broken, only)
    return sum(fire_plans(rows, chunk, broken) for chunk in _chunks(plans))


def due_plans(rows: Rows, broken: dict[str, str], only: str | None = None) -> list[Plan]:
    """Read the schedules that are due, and decide what to do with each."""
    left_out = [f"{name}/{version}" for name, version in broken.items()]
    plans = []
    for row in rows(_DUE_SQL, {"broken": left_out, "only": only}):
        due = Due(*row)
        try:
            plans.append(plan(due))
        except (ValueError, OverflowError) as error:
            _leave_out(broken, due, error)
    return plans


def plan(due: Due) -> Plan:
    """Decide what to do with a schedule that is due. Raise ValueError if its timing cannot be computed."""
    every = None if due.every is None else timedelta(microseconds=due.every)
    timing = Timing(due.cron, every, due.timezone)
    now, expected, last = _moment(due.now), _time(due.next_tick), _time(due.last_tick)
    floor = max(_time(due.since) or EPOCH, last or EPOCH)
    limit = due.catch_up_limit if due.catch_up == "all" else 1
    start = floor if expected is None else max(floor, expected)
    ticks: list[datetime] = []
    upcoming = expected if expected is not None and expected > now else next_tick(timing, start)
    if upcoming <= now:
        ticks = latest_ticks(timing, start, now, limit)
        upcoming = next_tick(timing, now)
    # What was expected counts even if the timing has changed since.
    if expected is not None and expected <= now and (last is None or expected > last):
        ticks = [expected, *ticks][-limit:]
    is_missed = due.catch_up == "skip" and bool(ticks) and now - ticks[-1] > PUNCTUAL
    return Plan(due.name, due.version, upcoming, ticks, is_missed)


def fire_plans(rows: Rows, plans: list[Plan], broken: dict[str, str]) -> int:
    """Fire together; if the database refuses that, one by one, to find out which schedule is at fault."""
    try:
        ((moved,),) = rows(_FIRE_SQL, _parameters(plans))
    except LOST_CONNECTION:
        raise
    except psycopg.Error as error:
        if len(plans) > 1:
            return sum(fire_plans(rows, [one], broken) for one in plans)
        _leave_out(broken, plans[0], error)
        return 1
    return int(moved)


def _parameters(plans: list[Plan]) -> tuple[Any, ...]:
    ticks = [(each.name, tick, each.is_missed) for each in plans for tick in each.ticks]
    return (
        [each.name for each in plans],
        [each.version for each in plans],
        [each.next_tick for each in plans],
        [each.ticks[-1] if each.ticks else None for each in plans],
        [name for name, _, _ in ticks],
        [tick for _, tick, _ in ticks],
        [is_missed for _, _, is_missed in ticks],
    )


def _chunks(plans: list[Plan]) -> Iterator[list[Plan]]:
    chunk: list[Plan] = []
    size = 0
    for each in plans:
        if chunk and size + len(each.ticks) > FIRE_LIMIT:
            yield chunk
            chunk, size = [], 0
        chunk.append(each)
        size += len(each.ticks)
    if chunk:
        yield chunk


def _leave_out(broken: dict[str, str], schedule: Due | Plan, error: Exception) -> None:
    broken[schedule.name] = schedule.version
    # The rest of what the database says is the source of a function.
    what = str(error).strip().partition("\n")[0].removesuffix(".")
    logger.error(
        "schedule %r does not fire: %s. Correct it, in the admin or with SQL; after that it fires again.",
        schedule.name,
        what,
    )


def _time(microseconds: int | None) -> datetime | None:
    return None if microseconds is None else _moment(microseconds)


def _moment(microseconds: int) -> datetime:
    return EPOCH + timedelta(microseconds=microseconds)
