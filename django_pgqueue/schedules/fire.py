"""The round that fires schedules: any supervisor may do it at any time.

    look:    read the schedules that are due, without a lock
    plan:    compute which of their runs have passed, and the next one
    fire:    one function writes runs and jobs and moves the schedules on, all or nothing

The heartbeat asks when to look next, so an installation without schedules sends no statement for them, and a
schedule that someone has just changed is noticed within a heartbeat. If several supervisors look at the same
moment, ``_pgqueue_fire`` lets one of them fire a run. A schedule that cannot be computed is logged once
and left out until its row changes; it does not hold up the others.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import accumulate, groupby
from time import monotonic
from typing import Any, NamedTuple, TypeAlias

import psycopg

from ..formatting import get_logger
from ..postgres import sql_of
from ..postgres.session import LOST_CONNECTION, Session
from .cron import EPOCH, Timing, latest_runs, next_run
from .policy import known_policy

Rows: TypeAlias = Callable[[str, Any], list[Any]]

logger = get_logger(__name__)
LOOK_LIMIT = 1_000  # schedules in one look
FIRE_LIMIT = 2_000  # about as many runs in one statement as in ``enqueue_many``
SPREAD = 0.05  # seconds; not all supervisors look at the same moment
STUCK_PAUSE = 0.25  # seconds; an open transaction edits what is due, or holds the unique key of its job
MOST_STUCK = 10  # schedules in one round whose keys were held; waiting for more would delay the heartbeat

_ACTIVE = (
    "schedule.paused_at IS NULL AND schedule.retired_at IS NULL"
    " AND schedule.name || '/' || schedule.xmin::text <> ALL (%(broken)s::text[])"
)
#: An expression with the parameter ``broken``: the seconds until the next look, negative if it is overdue,
#: NULL if there is nothing to wait for. Runs that wait for a job are looked at every second.
NEXT_LOOK = sql_of(__file__, "next_look").format(active=_ACTIVE)
_DUE_SQL = sql_of(__file__, "due").format(active=_ACTIVE, most=LOOK_LIMIT)
_FIRE_SQL = sql_of(__file__, "fire")


class Firing:
    """When this supervisor looks next, and which schedules it leaves out because they are broken."""

    def __init__(self) -> None:
        self.broken: dict[str, str] = {}
        """The versions of rows that cannot fire, by the name of the schedule."""
        self.next_round = float("inf")
        """When ``run`` must be called next, by the monotonic clock."""

    def look_in(self, seconds: float | None, now: float) -> None:
        """Look then, or earlier if that was planned. None: there is nothing to look at."""
        if seconds is not None:
            self.next_round = min(self.next_round, now + max(0.0, seconds) + random.uniform(0.0, SPREAD))

    def run(self, session: Session, now: float) -> None:
        """Fire what is due, if it is time."""
        if now < self.next_round:
            return
        began = monotonic()
        plans = due_plans(session.rows, self.broken)
        fired = _fire(session.rows, plans, self.broken)
        self.next_round = float("inf")
        seconds: float | None = session.value(f"SELECT {NEXT_LOOK}", left_out(self.broken))
        # Not if nothing was due yet: a run may have become due between the two statements.
        if seconds is not None and seconds <= 0 and plans and not fired:
            seconds = STUCK_PAUSE
        self.look_in(seconds, now + monotonic() - began)


def fire_due(rows: Rows, broken: dict[str, str]) -> int:
    """Fire the schedules that are due, at most `LOOK_LIMIT`. Return how many moved on.

    `rows` runs a statement and returns its rows. Schedules that cannot fire are logged and added to `broken`.
    """
    return _fire(rows, due_plans(rows, broken), broken)


def due_plans(rows: Rows, broken: dict[str, str]) -> list[Plan]:
    """Read the schedules that are due, and decide what to do with each."""
    plans = []
    for row in rows(_DUE_SQL, left_out(broken)):
        due = Due(*row)
        try:
            found = plan(due)
            if due.call is not None and (policy := known_policy(*json.loads(due.call))) is not None:
                found = found._replace(policy=json.dumps(policy))
            plans.append(found)
        except (ValueError, OverflowError) as error:
            _leave_out(broken, due, error)
    return plans


def fire_plans(rows: Rows, plans: list[Plan], broken: dict[str, str]) -> int:
    """Fire together; if the database refuses that, one by one, to find out which schedule is at fault.

    A schedule is not at fault if an open transaction holds the unique key of its job. It stays due. Each time
    the order is another, so that all have their turn if many keys are held.
    """
    runs = [(each.name, run, each.is_missed) for each in plans for run in each.runs]
    policies = [each.policy for each in plans]
    parameters = (
        [each.name for each in plans],
        [each.version for each in plans],
        [each.next_run_at for each in plans],
        [each.runs[-1] if each.runs else None for each in plans],
        [name for name, _, _ in runs],
        [run for _, run, _ in runs],
        [is_missed for _, _, is_missed in runs],
        policies if any(policies) else None,
    )
    try:
        ((moved,),) = rows(_FIRE_SQL, parameters)
        return int(moved)
    except psycopg.errors.LockNotAvailable:
        if len(plans) == 1:
            return 0
    except LOST_CONNECTION:
        raise
    except psycopg.Error as error:
        if len(plans) == 1:
            _leave_out(broken, plans[0], error)
            return 1
    moved = stuck = 0
    for one in random.sample(plans, len(plans)):
        fired = fire_plans(rows, [one], broken)
        moved += fired
        stuck += not fired
        if stuck >= MOST_STUCK:
            break
    return moved


def _fire(rows: Rows, plans: list[Plan], broken: dict[str, str]) -> int:
    numbered = zip(accumulate(len(each.runs) for each in plans), plans, strict=True)
    chunks = groupby(numbered, key=lambda pair: pair[0] // FIRE_LIMIT)
    return sum(fire_plans(rows, [each for _, each in chunk], broken) for _, chunk in chunks)


def left_out(broken: dict[str, str]) -> dict[str, list[str]]:
    """Return the parameters of `NEXT_LOOK`."""
    return {"broken": [f"{name}/{version}" for name, version in broken.items()]}


def _leave_out(broken: dict[str, str], schedule: Due | Plan, error: Exception) -> None:
    broken[schedule.name] = schedule.version
    # The rest of what the database says is the source of a function.
    what = str(error).strip().partition("\n")[0].removesuffix(".")
    logger.error(
        "schedule %r does not fire: %s. Correct it, in the admin or with SQL; after that it fires again.",
        schedule.name, what,
    )  # fmt: skip


# What a round makes of a schedule that is due: which of its runs have passed, and which one comes next.
# Nothing here knows the database. If the timing has been edited since the last round, the runs of the old
# timing until the edit count as well: the trigger (``_pgqueue_schedule_changed``) has noted it in the column
# ``owed``.

#: A run that is noticed later than this was missed: ``catch_up="skip"`` leaves it out.
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
    next_run_at: int | None
    last_run_at: int | None
    since: int | None
    now: int
    owed: str | None  # the timings before the present one, as JSON; None: nothing is owed to them
    call: str | None  # the task and the arguments, as JSON, if the row has no policy for them; None: it has


class Plan(NamedTuple):
    """What the round makes of a schedule that is due."""

    name: str
    version: str
    next_run_at: datetime
    runs: list[datetime]  # the runs that have passed and are to run, the oldest first
    is_missed: bool  # whether the runs are only recorded, because no worker was there in time
    policy: str | None = None
    """The policy of the task, as JSON, if it was computed anew; None: it is in the row, or unknown."""


def plan(due: Due) -> Plan:
    """Decide what to do with a schedule that is due. Raise ValueError if its timing cannot be computed."""
    timing = _timing(due.cron, due.every, due.timezone)
    now, expected, last = (_moment(time or 0) for time in (due.now, due.next_run_at, due.last_run_at))
    limit = due.catch_up_limit if due.catch_up == "all" else 1
    floor = max(last, expected)  # what was before is done
    runs: list[datetime] = []
    for owed in json.loads(due.owed or "[]"):  # the timings before the present one, each until it was edited
        with suppress(ValueError, OverflowError):  # it was wrong, so it was edited
            old = _timing(owed["cron"], owed["every"], owed["timezone"])
            runs += latest_runs(old, max(floor, _moment(owed["since"] or 0)), _moment(owed["until"]), limit)
    start = max(floor, _moment(due.since or 0))
    upcoming = expected if expected > now else next_run(timing, start)
    if upcoming <= now:
        runs += latest_runs(timing, start, now, limit)
        upcoming = next_run(timing, now)
    # What was expected counts even if the timing has changed since.
    if last < expected <= now:
        runs.insert(0, expected)
    runs = runs[-limit:]
    is_missed = due.catch_up == "skip" and bool(runs) and now - runs[-1] > PUNCTUAL
    return Plan(due.name, due.version, upcoming, runs, is_missed)


def _timing(cron: str | None, every: int | None, timezone: str) -> Timing:
    return Timing(cron, None if every is None else timedelta(microseconds=every), timezone)


def _moment(microseconds: int) -> datetime:
    return EPOCH + timedelta(microseconds=microseconds)
