"""Size, dead rows and last vacuum of each table of the queue."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from datetime import datetime
from threading import Lock
from typing import Any, NamedTuple

from django.db import connections
from django.utils.translation import gettext as _

from .part import Part, State, count_text, rows_of, words

LIVE = "pgqueue_job_live"
MOST_DEAD = 100_000


@dataclass(frozen=True, slots=True)
class Table:
    """One table; counts of rows are those of the server's statistics."""

    name: str
    table_bytes: int
    index_bytes: int
    live_rows: int
    dead_rows: int
    vacuumed_at: datetime | None
    analyzed_at: datetime | None
    is_current: bool | None
    """Whether jobs that end now go there; None if it is not a part of the ring of history."""

    @property
    def total_bytes(self) -> int:
        """With its indexes."""
        return self.table_bytes + self.index_bytes

    @property
    def has_too_many(self) -> bool:
        """Whether vacuum does not keep up. That of the live jobs runs early, that of others when a share of
        the rows is dead.
        """
        return self.dead_rows > MOST_DEAD + (0 if self.name == LIVE else self.live_rows // 2)


def read_tables(alias: str) -> Part:
    """Return the tables: that of live jobs, the other jobs, then the rest, the largest first."""
    found = [Table(*row) for row in rows_of(alias, "tables")]
    live = next(table for table in found if table.name == LIVE)
    late = [table.name for table in found if table.has_too_many]
    finding = _("%(name)s has %(live)s live and %(dead)s dead rows.") % {
        "name": LIVE,
        "live": count_text(live.live_rows),
        "dead": count_text(live.dead_rows),
    }
    if late:
        finding = _("Vacuum does not keep up in %(names)s.") % {"names": ", ".join(late)}
    rule = _(
        "Act when %(name)s has more than %(limit)s dead rows, or another table that many and half of its live"
        " rows: look for old transactions above, then for autovacuum: is it on, and are its workers busy?"
    ) % {"name": LIVE, "limit": count_text(MOST_DEAD)}
    return Part("tables", State.ACT if late else State.FINE, finding, rule, found)


# ----------------------------------------------------------------------------
# The ring of history: whether it turns, so that old jobs are removed.

SHORTEST_TURN = 3600.0  # seconds; with a very short retention, maintenance has this long


@dataclass(frozen=True, slots=True)
class Ring:
    """The position of the ring."""

    current: int
    """The shelf to which jobs that end now go: 1 to 8."""
    seconds: float
    """How long they have gone there."""
    retention: float
    """How many seconds finished jobs are kept."""

    @property
    def is_late(self) -> bool:
        """Whether it should have moved long ago: it moves after a sixth of the retention."""
        return self.seconds > max(self.retention / 3, SHORTEST_TURN)


def read_ring(alias: str) -> Part:
    """Return the position of the ring."""
    found = Ring(*rows_of(alias, "ring")[0])
    finding = _("Jobs have ended in part %(shelf)d of 8 for %(time)s; they are kept for %(retention)s.") % {
        "shelf": found.current,
        "time": words(found.seconds),
        "retention": words(found.retention),
    }
    rule = _(
        "Act when history has not moved on for more than a third of the retention: no worker does the"
        " maintenance, or a long transaction reads the oldest part, which can then not be emptied."
    )
    state = State.ACT if found.is_late else State.FINE
    return Part("ring", state, finding, rule, [found])


# ----------------------------------------------------------------------------
# How much is committed and written to the write-ahead log.
#
# The server only has sums. This process keeps those that it has read in the last minutes, so a page that is
# refreshed shows the rates since then. The first look shows the averages since the sums were reset.

SHORTEST_INTERVAL, LONGEST_INTERVAL = 4.0, 120.0  # seconds between two readings that are compared
FEWEST = 10  # checkpoints
_BEFORE_17 = {"view": "pg_stat_bgwriter", "timed": "checkpoints_timed", "forced": "checkpoints_req"}
_SINCE_17 = {"view": "pg_stat_checkpointer", "timed": "num_timed", "forced": "num_requested"}


class Reading(NamedTuple):
    """The sums at one time."""

    at: float
    """Seconds since the epoch, on the clock of the server."""
    wal_bytes: float
    commits: int
    rollbacks: int
    deadlocks: int
    timed: int
    forced: int
    """Checkpoints that were due, and that the amount of the log forced."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """The rates over some time."""

    seconds: float
    """How long this time is."""
    is_since_reset: bool
    """Whether it began when the sums were reset, and not with an earlier reading."""
    wal_bytes_per_second: float
    commits_per_second: float
    rollbacks_per_second: float
    deadlocks: int
    timed_checkpoints: int
    forced_checkpoints: int


_readings: dict[str, deque[Reading]] = {}
_lock = Lock()


def read_traffic(alias: str) -> Part:
    """Return the rates."""
    server: Any = connections[alias]
    [row] = rows_of(alias, "traffic", _SINCE_17 if server.pg_version >= 170_000 else _BEFORE_17)
    now, wal_since, since = Reading(*row[:-2]), *row[-2:]
    found = _since_reset(now, wal_since, since)
    rates = _recent(alias, now) or found
    finding = _(
        "%(commits).1f commits a second and %(wal)s of write-ahead log a second, over the last %(time)s."
    ) % {
        "commits": rates.commits_per_second,
        "wal": _bytes(rates.wal_bytes_per_second),
        "time": words(rates.seconds),
    }
    rule = _(
        "Act when there are deadlocks (the log of the server has the statements), or when the amount of log"
        " forces more checkpoints than are due by time (raise max_wal_size). Pages that read with a time"
        " limit, such as this one, end their transactions by a rollback."
    )
    rows = [rates] if rates is found else [rates, found]
    has_deadlocks = rates is not found and rates.deadlocks > 0
    is_bad = has_deadlocks or found.forced_checkpoints > max(FEWEST, found.timed_checkpoints)
    state = State.ACT if is_bad else State.FINE
    return Part("traffic", state, finding, rule, rows)


def _recent(alias: str, now: Reading) -> Traffic | None:
    """Return the rates since the oldest reading of the last minutes, and keep this one."""
    with _lock:
        kept = _readings.setdefault(alias, deque())
        while kept and not (now.at - LONGEST_INTERVAL <= kept[0].at <= now.at and _grew(kept[0], now)):
            kept.popleft()
        before = kept[0] if kept else None
        if not kept or now.at - kept[-1].at >= SHORTEST_INTERVAL:
            kept.append(now)
    if before is None or now.at - before.at < SHORTEST_INTERVAL:
        return None
    return _rates(before, now, is_since_reset=False)


def _grew(before: Reading, now: Reading) -> bool:
    """Return whether nobody has reset the sums in the meantime."""
    return all(earlier <= later for earlier, later in zip(before, now, strict=True))


def _since_reset(now: Reading, wal_since: float, since: float) -> Traffic:
    """Return the rates since the sums were reset. Those of the log and of the database may differ in that."""
    found = _rates(Reading(since, 0, 0, 0, 0, 0, 0), now, is_since_reset=True)
    return replace(found, wal_bytes_per_second=now.wal_bytes / max(1.0, now.at - wal_since))


def _rates(before: Reading, now: Reading, *, is_since_reset: bool) -> Traffic:
    seconds = max(1.0, now.at - before.at)
    return Traffic(
        seconds,
        is_since_reset,
        (now.wal_bytes - before.wal_bytes) / seconds,
        (now.commits - before.commits) / seconds,
        (now.rollbacks - before.rollbacks) / seconds,
        now.deadlocks - before.deadlocks,
        now.timed - before.timed,
        now.forced - before.forced,
    )


def _bytes(count: float) -> str:
    for unit in ("B", "kB", "MB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if count >= 10 else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GB"
