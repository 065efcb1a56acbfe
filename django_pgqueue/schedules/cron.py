"""The times at which a schedule is due: cron expressions in a time zone, and intervals.

cronsim finds the times of a cron expression, the way Debian's cron does. An expression with fixed minutes and
hours runs once on every day that it names: on the day when clocks go forward, a time that does not exist
becomes the first moment after the gap, and on the day when they go back, only the first of two equal times
counts. An expression whose minute or hour begins with ``*`` follows the time that really passes.

Intervals are counted from 1970-01-01 00:00 UTC, so they need no memory and do not drift: an interval of an
hour is due at every full hour, however late a run was noticed and however often the schedule was edited.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from itertools import islice, pairwise, takewhile
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SHORTEST = timedelta(seconds=1)
LONGEST = timedelta(days=3660)

_NICKNAMES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}


class Timing(NamedTuple):
    """When a schedule is due: exactly one of ``cron`` and ``every`` is set."""

    cron: str | None
    every: timedelta | None
    timezone: str = "UTC"


def timing_of(cron: Any, every: Any, timezone: Any = "UTC") -> Timing:
    """Return what these values mean. Raise ValueError for an unknown time zone, or what is never due."""
    if (cron is None) == (every is None):
        raise ValueError(
            "A schedule takes either cron or every. "
            + ("Neither is set." if cron is None else f"Both are set: {cron!r} and {every!r}.")
        )
    zone(timezone)
    if cron is None:
        return Timing(None, _interval(every), timezone)
    if not isinstance(cron, str) or len(cron) > 100:
        raise ValueError(f"cron must be an expression of at most 100 characters. It is {cron!r}.")
    timing = Timing(cron, None, timezone)
    next_run(timing, datetime.now(UTC))
    return timing


def check_jitter(timing: Timing, jitter: timedelta) -> None:
    """Raise ValueError unless ``jitter`` is at most the time between two of the next runs."""
    if jitter < timedelta(0):
        raise ValueError(f"jitter must not be negative. It is {jitter}.")
    if not jitter:
        return
    runs = next_runs(timing, 8, datetime.now(UTC))
    shortest = min(later - earlier for earlier, later in pairwise(runs))
    if jitter > shortest:
        raise ValueError(
            f"jitter must not be longer than the time between two runs ({shortest}). It is {jitter}."
        )


def expand(cron: str) -> str:
    """Return the five fields of an expression; ``@daily`` and its like are names for some."""
    return _NICKNAMES.get(cron.strip().lower(), cron)


@lru_cache(maxsize=256)
def zone(name: str) -> tzinfo:
    """Return the time zone. Raise ValueError for an unknown one."""
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    # The name of a folder, a path, an empty name and no string at all each raise something else.
    except (OSError, LookupError, ValueError, TypeError, AttributeError) as error:
        raise ValueError(
            f"There is no time zone {name!r}. Use a name such as 'Europe/Paris'. If this is one, the system "
            "has no or old time zone data: install the package tzdata."
        ) from error


def next_run(timing: Timing, after: datetime) -> datetime:
    """Return the first run that is later than ``after``, in UTC. Raise ValueError as `timing_of` does."""
    return next(_runs(timing, after))


def next_runs(schedule: Any, count: int, after: datetime) -> list[datetime]:
    """Return the next runs of a row, a declaration or a timing after a time, in UTC."""
    return list(islice(_runs(Timing(schedule.cron, schedule.every, schedule.timezone), after), count))


def latest_runs(timing: Timing, after: datetime, until: datetime, limit: int) -> list[datetime]:
    """Return the last ``limit`` runs that are later than ``after`` and not later than ``until``."""
    found = takewhile(lambda run: run > after, _runs(timing, until, back=True))
    return [*islice(found, limit)][::-1]


def _runs(timing: Timing, start: datetime, *, back: bool = False) -> Iterator[datetime]:
    """Yield the runs that are later than a time. With ``back``, yield the others, the latest first."""
    start = start.astimezone(UTC)
    if timing.every is not None:
        step = _interval(timing.every)
        run = EPOCH + ((start - EPOCH) // step + (not back)) * step
        while True:
            yield run
            run += -step if back else step
    assert timing.cron is not None
    local = zone(timing.timezone)
    fields = expand(timing.cron)
    if len(fields.split()) != 5:
        raise ValueError(
            f"The cron expression {timing.cron!r} does not have five fields: minute, hour, day of the month, "
            "month, day of the week. For seconds, use every."
        )
    last = start.replace(microsecond=0) + timedelta(seconds=1) if back else start
    begin = last.astimezone(local)
    if back and begin.fold:  # a run in the first of the two equal hours may have a later time of the day
        begin += timedelta(hours=3)
    try:
        for named in CronSim(fields, begin, reverse=back):
            run = named.astimezone(UTC)
            # When clocks go back, cronsim may name a time before the start, if the start lies in the second
            # of the two equal hours. When they go forward, it may name the first moment after the gap twice.
            if run < last if back else run > last:
                last = run
                yield run
    except CronSimError as error:
        raise ValueError(
            f"The cron expression {timing.cron!r} is wrong, or names a day that does not exist: {error}."
        ) from error
    raise ValueError(f"The cron expression {timing.cron!r} is never due within the next 50 years.")


def _interval(every: Any) -> timedelta:
    every = as_timedelta(every)
    if not isinstance(every, timedelta) or not SHORTEST <= every <= LONGEST or every.microseconds:
        raise ValueError(
            "every must be whole seconds, as a number or a timedelta, from 1 second to "
            f"{LONGEST.days} days. It is {every!r}."
        )
    return every


def as_timedelta(value: Any) -> Any:
    """Return a number of seconds as a timedelta, and anything else as it is."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        with suppress(OverflowError, ValueError):
            return timedelta(seconds=value)
    return value
