"""The state of the database as the queue needs it: locks, old transactions, dead rows, connections, traffic.

Each part is one bounded statement with a time limit of its own, and has the line that says when to act. It
works for a role without privileges, and says what such a role cannot see.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

from django.db import ProgrammingError, connections
from django.db.models import TextChoices
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from psycopg.errors import InsufficientPrivilege

from ... import conf
from ...formatting import age, number
from ...postgres.timeout import TimeLimitReached, rows_within
from ...redaction import redact_text

if TYPE_CHECKING:
    from ...postgres.timeout import Row

PATIENCE = 1.0  # seconds that one statement may take
MOST = 50  # rows
CHARACTERS = 300  # of a statement
_READ = 1_000  # of them, so that patterns see more than is shown; the server keeps no more than 1,023 bytes
_FOLDER = Path(__file__).parent


class PartState(TextChoices):
    """What a part says."""

    FINE = "fine", gettext_lazy("fine")
    ACT = "act", gettext_lazy("act")
    HIDDEN = "hidden", gettext_lazy("not visible")
    """The role of this connection may not see enough to tell."""
    SLOW = "slow", gettext_lazy("too slow")
    """The server did not answer in time."""


_TITLES = {
    "locks": gettext_lazy("Lock contention"),
    "snapshots": gettext_lazy("Old transactions and held snapshots"),
    "tables": gettext_lazy("Tables"),
    "sessions": gettext_lazy("Connections"),
    "traffic": gettext_lazy("Commits and write-ahead log"),
    "wakeups": gettext_lazy("Wake-ups"),
    "ring": gettext_lazy("History"),
}


@dataclass(slots=True)
class DatabasePart:
    """One part."""

    code: str
    state: PartState
    finding: str
    """What was found, in one sentence."""
    rule: str
    """When to act, and how."""
    rows: list[Any] = field(default_factory=list)
    """Instances of one dataclass, the worst first."""

    @property
    def title(self) -> str:
        """What it is about."""
        return str(_TITLES[self.code])

    def as_json(self) -> dict[str, Any]:
        """Return it as values."""
        return {
            "code": self.code,
            "state": self.state.value,
            "finding": self.finding,
            "rule": self.rule,
            "rows": [{name: _plain(value) for name, value in asdict(row).items()} for row in self.rows],
        }


def rows_of(alias: str, name: str, columns: dict[str, str] | None = None, **parameters: Any) -> list[Row]:
    """Run the statement of a file, and return its rows. Raises ``TimeLimitReached``.

    ``columns``: the names that differ between versions of the server.
    """
    statement = (_FOLDER / f"{name}.sql").read_text(encoding="utf-8")
    if columns is not None:
        statement = statement.format(**columns)
    return rows_within(alias, PATIENCE, statement, {"most": MOST, "characters": _READ, **parameters})


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value


def statement_text(statement: str) -> str:
    """Return a statement in one line, redacted; "…" if it is too long for that."""
    if len(statement.encode()) >= _READ and not conf.current().redact.are_names:
        return "…"  # what a pattern is to find may have been cut off
    return redact_text(" ".join(statement.split()))[:CHARACTERS]


def database(alias: str, *, statements: bool = False) -> list[DatabasePart]:
    """Return the parts. A part that takes too long, or that the role may not read, says so.

    ``statements``: also read the texts of statements, of which some may contain the arguments of jobs.
    """
    readers: dict[str, Callable[[str], DatabasePart]] = {
        "locks": partial(read_locks, statements=statements),
        "snapshots": partial(read_snapshots, statements=statements),
        "tables": read_tables,
        "sessions": read_sessions,
        "traffic": read_traffic,
        "wakeups": read_wakeups,
        "ring": read_ring,
    }
    parts = []
    for code, read in readers.items():
        try:
            parts.append(read(alias))
        except TimeLimitReached:
            finding = _("The server did not answer within %(limit)s.") % {"limit": age(PATIENCE)}
            parts.append(DatabasePart(code, PartState.SLOW, finding, ""))
        except ProgrammingError as error:
            if not isinstance(error.__cause__, InsufficientPrivilege):
                raise
            finding = _("The role of this connection may not read it. Grant pg_monitor to see it.")
            parts.append(DatabasePart(code, PartState.HIDDEN, finding, ""))
    return parts


# ----------------------------------------------------------------------------
# Lock contention: who waits for whom on the tables of the queue, since when, and with which statement.

LONGEST_WAIT = 2.0  # seconds: the lock_timeout of the workers


@dataclass(frozen=True, slots=True)
class LockWait:
    """A session that waits for a lock, and one that blocks it."""

    table: str
    lock: str
    """What it waits for: "relation", "tuple", "transactionid" (a row of that transaction), "advisory"."""
    seconds: float
    pid: int
    program: str
    role: str
    statement: str
    """Empty unless asked for."""
    blocked_by: int
    """0 stands for a prepared transaction."""
    blocker: str
    blocker_role: str
    blocker_state: str
    blocker_seconds: float | None
    """How long the transaction of the blocking session has been open; None if that is not visible."""
    blocker_statement: str


def read_locks(alias: str, *, statements: bool = False) -> DatabasePart:
    """Return who waits for whom."""
    waits = [_wait(row) for row in rows_of(alias, "locks", statements=statements)]
    longest = max((wait.seconds for wait in waits), default=0.0)
    waiting = len({wait.pid for wait in waits})
    finding = _("Nobody waits for a lock.")
    if waits:
        finding = _("%(count)d sessions wait for a lock, the longest for %(time)s.") % {
            "count": waiting,
            "time": age(longest),
        }
    rule = _(
        "Act when a session waits for more than %(limit)s: workers then give up and repeat their statement."
        " End the session that blocks the others (pg_terminate_backend), or make its transactions shorter."
    ) % {"limit": age(LONGEST_WAIT)}
    state = PartState.ACT if longest > LONGEST_WAIT else PartState.FINE
    return DatabasePart("locks", state, finding, rule, waits)


def _wait(row: tuple[Any, ...]) -> LockWait:
    wait = LockWait(*row)
    return replace(
        wait,
        statement=statement_text(wait.statement),
        blocker_statement=statement_text(wait.blocker_statement),
    )


# ----------------------------------------------------------------------------
# Held snapshots: the transactions, prepared transactions and replication slots that keep dead rows.

OLDEST = 300.0  # seconds


@dataclass(frozen=True, slots=True)
class HeldSnapshot:
    """Something that holds a snapshot, or a transaction that is open."""

    kind: str
    """ "transaction", "prepared" or "slot"."""
    name: str
    """The program of the session, the name of the prepared transaction, or that of the slot."""
    pid: int | None
    role: str
    state: str
    seconds: float | None
    """How long it has been there; None for a slot, and if that is not visible."""
    transactions: int | None
    """How many transactions have begun since; None if it holds nothing yet."""
    is_visible: bool
    statement: str
    """Empty unless asked for."""

    @property
    def is_too_old(self) -> bool:
        """Whether to act. A slot that nobody uses keeps dead rows, or write-ahead log, for ever."""
        if self.kind == "slot":
            return self.state == "inactive"
        return self.seconds is not None and self.seconds > OLDEST


def read_snapshots(alias: str, *, statements: bool = False) -> DatabasePart:
    """Return what holds snapshots, the oldest first."""
    rows = rows_of(alias, "snapshots", statements=statements)
    held = [
        replace(each, statement=statement_text(each.statement))
        for each in (HeldSnapshot(*row) for row in rows)
    ]
    ages = [each.seconds for each in held if each.seconds is not None]
    hidden = sum(not each.is_visible for each in held)
    found = [_("No transaction is open.")]
    if ages:
        found = [_("The oldest transaction has been open for %(time)s.") % {"time": age(max(ages))}]
    elif held:
        found = []
    slots = sum(each.kind == "slot" and each.is_too_old for each in held)
    if slots:
        found.append(_("Replication slots that nobody uses: %(count)d.") % {"count": slots})
    state = PartState.ACT if any(each.is_too_old for each in held) else PartState.FINE
    if hidden:
        found.append(
            _("The ages of %(count)d sessions are not visible. Grant pg_read_all_stats to see them.")
            % {"count": hidden}
        )
        state = PartState.HIDDEN if state == PartState.FINE else state
    rule = _(
        "Act when a transaction has been open for more than %(limit)s, or when a replication slot is not"
        " used: VACUUM keeps all rows that died since, in every table. End the session or roll the prepared"
        " transaction back, drop the slot, and set idle_in_transaction_session_timeout for web processes."
    ) % {"limit": age(OLDEST)}
    return DatabasePart("snapshots", state, " ".join(found), rule, held)


# ----------------------------------------------------------------------------
# Connections by program against those that the server allows.

MOST_USED = 0.8


@dataclass(frozen=True, slots=True)
class Program:
    """The connections with one ``application_name``."""

    name: str
    connections: int
    active: int
    in_transaction: int
    """Idle in a transaction."""
    hidden: int
    """Connections of other roles, whose state is not visible."""
    in_this_database: int


def read_sessions(alias: str) -> DatabasePart:
    """Return the connections of the whole server, those of the program with the most first."""
    rows = rows_of(alias, "sessions")
    programs = [Program(*row[:-1]) for row in rows]
    used = sum(program.connections for program in programs)
    allowed = rows[0][-1] if rows else 0
    finding = _("%(used)d of %(allowed)d connections of the server are in use.") % {
        "used": used,
        "allowed": allowed,
    }
    rule = _(
        "Act when more than %(share)d%% are in use: workers and web processes that restart would not get in."
        " Raise max_connections, start fewer threads, or put web processes behind a pooler."
    ) % {"share": round(100 * MOST_USED)}
    state = PartState.ACT if used > MOST_USED * allowed else PartState.FINE
    return DatabasePart("sessions", state, finding, rule, programs)


# ----------------------------------------------------------------------------
# The notifications that wake workers: how full the server's queue of them is, and who hears them.

MOST_FULL = 0.1


@dataclass(frozen=True, slots=True)
class Wakeups:
    """The state of the notifications."""

    queue_usage: float
    """The share of the server's queue of notifications that is in use, for all its databases."""
    workers: int
    """Workers of this package, without those in other languages."""
    polling_workers: int
    """Those of them that hear no notifications, since they are behind a transaction pooler."""


def read_wakeups(alias: str) -> DatabasePart:
    """Return the state of the notifications."""
    found = Wakeups(*rows_of(alias, "wakeups")[0])
    finding = _(
        "The queue of notifications is %(share).0f%% full; %(polling)d of %(workers)d workers poll."
    ) % {
        "share": 100 * found.queue_usage,
        "polling": found.polling_workers,
        "workers": found.workers,
    }
    rule = _(
        "Act when more than %(share)d%% are in use: a session that listens does not read, mostly because its"
        " transaction is open; when the queue is full, commits that notify fail. Workers that poll are behind"
        " a transaction pooler: they find a job after up to POLL_INTERVAL seconds. Let them connect directly"
        " if that is too long."
    ) % {"share": round(100 * MOST_FULL)}
    state = PartState.ACT if found.queue_usage > MOST_FULL else PartState.FINE
    return DatabasePart("wakeups", state, finding, rule, [found])


# ----------------------------------------------------------------------------
# Size, dead rows and last vacuum of each table of the queue.

LIVE = "pgqueue_job_live"
MOST_DEAD = 100_000


@dataclass(frozen=True, slots=True)
class TableSize:
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


def read_tables(alias: str) -> DatabasePart:
    """Return the tables: that of live jobs, the other jobs, then the rest, the largest first."""
    found = [TableSize(*row) for row in rows_of(alias, "tables")]
    live = next(table for table in found if table.name == LIVE)
    late = [table.name for table in found if table.has_too_many]
    finding = _("%(name)s has %(live)s live and %(dead)s dead rows.") % {
        "name": LIVE,
        "live": number(live.live_rows),
        "dead": number(live.dead_rows),
    }
    if late:
        finding = _("Vacuum does not keep up in %(names)s.") % {"names": ", ".join(late)}
    rule = _(
        "Act when %(name)s has more than %(limit)s dead rows, or another table that many and half of its live"
        " rows: look for old transactions above, then for autovacuum: is it on, and are its workers busy?"
    ) % {"name": LIVE, "limit": number(MOST_DEAD)}
    return DatabasePart("tables", PartState.ACT if late else PartState.FINE, finding, rule, found)


# ----------------------------------------------------------------------------
# The ring of history: whether it turns, so that old jobs are removed.

SHORTEST_TURN = 3600.0  # seconds; with a very short retention, maintenance has this long


@dataclass(frozen=True, slots=True)
class RingPosition:
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


def read_ring(alias: str) -> DatabasePart:
    """Return the position of the ring."""
    found = RingPosition(*rows_of(alias, "ring")[0])
    finding = _("Jobs have ended in part %(shelf)d of 8 for %(time)s; they are kept for %(retention)s.") % {
        "shelf": found.current,
        "time": age(found.seconds),
        "retention": age(found.retention),
    }
    rule = _(
        "Act when history has not moved on for more than a third of the retention: no worker does the"
        " maintenance, or a long transaction reads the oldest part, which can then not be emptied."
    )
    state = PartState.ACT if found.is_late else PartState.FINE
    return DatabasePart("ring", state, finding, rule, [found])


# ----------------------------------------------------------------------------
# How much is committed and written to the write-ahead log.
#
# The server only has sums. This process keeps those that it has read in the last minutes, so a page that is
# refreshed shows the rates since then. The first look shows the averages since the sums were reset.

SHORTEST_INTERVAL, LONGEST_INTERVAL = 4.0, 120.0  # seconds between two readings that are compared
FEWEST = 10  # checkpoints
_BEFORE_17 = {"view": "pg_stat_bgwriter", "timed": "checkpoints_timed", "forced": "checkpoints_req"}
_SINCE_17 = {"view": "pg_stat_checkpointer", "timed": "num_timed", "forced": "num_requested"}


class ServerSums(NamedTuple):
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


_readings: dict[str, deque[ServerSums]] = {}
_lock = Lock()


def read_traffic(alias: str) -> DatabasePart:
    """Return the rates."""
    server: Any = connections[alias]
    [row] = rows_of(alias, "traffic", _SINCE_17 if server.pg_version >= 170_000 else _BEFORE_17)
    now, wal_since, since = ServerSums(*row[:-2]), *row[-2:]
    found = _since_reset(now, wal_since, since)
    rates = _recent(alias, now) or found
    finding = _(
        "%(commits).1f commits a second and %(wal)s of write-ahead log a second, over the last %(time)s."
    ) % {
        "commits": rates.commits_per_second,
        "wal": _bytes(rates.wal_bytes_per_second),
        "time": age(rates.seconds),
    }
    rule = _(
        "Act when there are deadlocks (the log of the server has the statements), or when the amount of log"
        " forces more checkpoints than are due by time (raise max_wal_size). Pages that read with a time"
        " limit, such as this one, end their transactions by a rollback."
    )
    rows = [rates] if rates is found else [rates, found]
    has_deadlocks = rates is not found and rates.deadlocks > 0
    is_bad = has_deadlocks or found.forced_checkpoints > max(FEWEST, found.timed_checkpoints)
    state = PartState.ACT if is_bad else PartState.FINE
    return DatabasePart("traffic", state, finding, rule, rows)


def _recent(alias: str, now: ServerSums) -> Traffic | None:
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


def _grew(before: ServerSums, now: ServerSums) -> bool:
    """Return whether nobody has reset the sums in the meantime."""
    return all(earlier <= later for earlier, later in zip(before, now, strict=True))


def _since_reset(now: ServerSums, wal_since: float, since: float) -> Traffic:
    """Return the rates since the sums were reset. Those of the log and of the database may differ in that."""
    found = _rates(ServerSums(since, 0, 0, 0, 0, 0, 0), now, is_since_reset=True)
    return replace(found, wal_bytes_per_second=now.wal_bytes / max(1.0, now.at - wal_since))


def _rates(before: ServerSums, now: ServerSums, *, is_since_reset: bool) -> Traffic:
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
