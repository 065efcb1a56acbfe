"""The state of the database as the queue needs it: locks, old transactions, dead rows, connections, traffic.

Each part is one bounded statement with a time limit of its own, and has the line that says when to act. It
works for a role without privileges, and says what such a role cannot see.
"""

from __future__ import annotations

from collections import deque, namedtuple
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from threading import Lock
from typing import Any

from django.db import ProgrammingError, connections
from django.db.models import TextChoices
from django.template.defaultfilters import filesizeformat
from django.utils.translation import gettext as _, gettext_lazy
from psycopg.errors import InsufficientPrivilege

from ... import conf
from ...formatting import age, number
from ...postgres import sql_of
from ...postgres.timeout import TimeLimitReached, time_limit
from ...redaction import redact_text

PATIENCE = 1.0  # seconds that one statement may take
MOST = 50  # rows
CHARACTERS = 300  # of a statement
_READ = 1_000  # of them, so that patterns see more than is shown; the server keeps no more than 1,023 bytes


class PartState(TextChoices):
    """What a part says."""

    FINE = "fine", gettext_lazy("fine")
    ACT = "act", gettext_lazy("act")
    HIDDEN = "hidden", gettext_lazy("not visible")  # the role of this connection may not see enough
    SLOW = "slow", gettext_lazy("too slow")  # the server did not answer in time


@dataclass(slots=True)
class DatabasePart:
    """One part."""

    code: str
    state: PartState
    finding: str
    rule: str  # when to act, and how
    rows: list[Any] = field(default_factory=list)
    """Named tuples with the columns of the part's statement, the worst first."""

    @property
    def title(self) -> str:
        """What it is about."""
        return str(_PARTS[self.code][0])

    def as_json(self) -> dict[str, Any]:
        """Return it as values."""
        return asdict(replace(self, rows=[row._asdict() for row in self.rows]))


def database(alias: str, *, statements: bool = False) -> list[DatabasePart]:
    """Return the parts. A part that takes too long, or that the role may not read, says so.

    ``statements``: also read the texts of statements, of which some may contain the arguments of jobs.
    """
    return [_part(alias, code, statements) for code in _PARTS]


def _part(alias: str, code: str, statements: bool) -> DatabasePart:
    try:
        rows = read_rows(alias, code, statements=statements)
    except TimeLimitReached:
        finding = _("The server did not answer within %(limit)s.") % {"limit": age(PATIENCE)}
        return DatabasePart(code, PartState.SLOW, finding, "")
    except ProgrammingError as error:
        if not isinstance(error.__cause__, InsufficientPrivilege):
            raise
        finding = _("The role of this connection may not read it. Grant pg_monitor to see it.")
        return DatabasePart(code, PartState.HIDDEN, finding, "")
    state, finding, rule = _PARTS[code][1](rows)
    return DatabasePart(code, state, finding, rule, rows)


def read_rows(alias: str, code: str, *, statements: bool = False) -> list[Any]:
    """Return the rows of a part. Raises ``TimeLimitReached``."""
    statement = sql_of(__file__, code)
    if code == "traffic":
        server: Any = connections[alias]
        statement = statement.format(**(_SINCE_17 if server.pg_version >= 170_000 else _BEFORE_17))
    with time_limit(alias, PATIENCE), connections[alias].cursor() as cursor:
        cursor.execute(statement, {"most": MOST, "characters": _READ, "statements": statements})
        make = namedtuple("Row", [column[0] for column in cursor.description])  # type: ignore[misc]
        rows = [_redacted(make(*row)) for row in cursor.fetchall()]
    return _rates(alias, rows[0]) if code == "traffic" else rows


def _redacted(row: Any) -> Any:
    """Return a row with each statement in one line, redacted; "…" if it is too long for that."""
    texts = {}
    for name in {"statement", "blocker_statement"}.intersection(row._fields):
        text = getattr(row, name)
        # What a pattern is to find may have been cut off.
        is_cut = len(text.encode()) >= _READ and not conf.current().redact.are_names
        texts[name] = "…" if is_cut else redact_text(" ".join(text.split()))[:CHARACTERS]
    return row._replace(**texts)


LONGEST_WAIT = 2.0  # seconds: the lock_timeout of the workers
OLDEST = 300.0  # seconds
LIVE = "pgqueue_job_live"
MOST_DEAD = 100_000  # rows
MOST_USED = 0.8  # of the connections
FEWEST = 10  # checkpoints
MOST_FULL = 0.1  # of the server's queue of notifications
SHORTEST_TURN = 3600.0  # seconds; with a very short retention, maintenance has this long

Judgment = tuple[PartState, str, str]


def _act_if(is_bad: bool) -> PartState:
    return PartState.ACT if is_bad else PartState.FINE


def _locks(waits: list[Any]) -> Judgment:
    longest = max((wait.seconds for wait in waits), default=0.0)
    finding = _("No session waits for a lock.")
    if waits:
        count = len({wait.pid for wait in waits})
        finding = _("%(count)d sessions wait for a lock, the longest for %(time)s.")
        finding %= {"count": count, "time": age(longest)}
    rule = _(
        "Act when a session waits for more than %(limit)s: workers then give up and repeat their statement."
        " End the session that blocks the others (pg_terminate_backend), or make its transactions shorter."
    )
    return _act_if(longest > LONGEST_WAIT), finding, rule % {"limit": age(LONGEST_WAIT)}


def is_too_old(held: Any) -> bool:
    """Return whether to act. A slot without a consumer keeps dead rows, or write-ahead log, for ever."""
    if held.kind == "slot":
        return bool(held.state == "inactive")
    return held.seconds is not None and held.seconds > OLDEST


def _snapshots(held: list[Any]) -> Judgment:
    found = []
    if ages := [each.seconds for each in held if each.seconds is not None]:
        found.append(_("The oldest transaction has been open for %(time)s.") % {"time": age(max(ages))})
    elif not held:
        found.append(_("No transaction is open."))
    if slots := sum(each.kind == "slot" and is_too_old(each) for each in held):
        found.append(_("Replication slots without a consumer: %(count)d.") % {"count": slots})
    state = _act_if(any(map(is_too_old, held)))
    if hidden := sum(not each.is_visible for each in held):
        text = _("The ages of %(count)d sessions are not visible. Grant pg_read_all_stats to see them.")
        found.append(text % {"count": hidden})
        state = PartState.HIDDEN if state == PartState.FINE else state
    rule = _(
        "Act when a transaction has been open for more than %(limit)s, or when a replication slot is not"
        " used: VACUUM keeps all rows that died since, in every table. End the session or roll the prepared"
        " transaction back, drop the slot, and set idle_in_transaction_session_timeout for web processes."
    )
    return state, " ".join(found), rule % {"limit": age(OLDEST)}


def has_too_many(table: Any) -> bool:
    """Return whether vacuum does not keep up. On live jobs it runs before a share of the rows is dead."""
    return bool(table.dead_rows > MOST_DEAD + (0 if table.name == LIVE else table.live_rows // 2))


def _tables(tables: list[Any]) -> Judgment:
    late = [table.name for table in tables if has_too_many(table)]
    if late:
        finding = _("Vacuum does not keep up in %(names)s.") % {"names": ", ".join(late)}
    else:
        live = next(table for table in tables if table.name == LIVE)
        numbers = {"name": LIVE, "live": number(live.live_rows), "dead": number(live.dead_rows)}
        finding = _("%(name)s has %(live)s live and %(dead)s dead rows.") % numbers
    rule = _(
        "Act when %(name)s has more than %(limit)s dead rows, or another table has more than %(limit)s plus"
        " half the number of its live rows. Look for old transactions above, then for autovacuum: is it on,"
        " and are its workers busy?"
    )
    return _act_if(bool(late)), finding, rule % {"name": LIVE, "limit": number(MOST_DEAD)}


def _sessions(programs: list[Any]) -> Judgment:
    used = sum(program.connections for program in programs)
    allowed = programs[0].allowed if programs else 0
    finding = _("%(used)d of %(allowed)d connections of the server are in use.")
    rule = _(
        "Act when more than %(share)d%% are in use: workers and web processes that restart would not get in."
        " Raise max_connections, start fewer threads, or put web processes behind a pooler."
    ) % {"share": round(100 * MOST_USED)}
    return _act_if(used > MOST_USED * allowed), finding % {"used": used, "allowed": allowed}, rule


def _traffic(rows: list[Any]) -> Judgment:
    rates, since_reset = rows[0], rows[-1]
    wal, time = filesizeformat(rates.wal_bytes_per_second), age(rates.seconds)
    finding = _(
        "%(commits).1f commits a second and %(wal)s of write-ahead log a second, over the last %(time)s."
    ) % {"commits": rates.commits_per_second, "wal": wal, "time": time}
    rule = _(
        "Act when there are deadlocks (the log of the server has the statements), or when the amount of log"
        " forces more checkpoints than are due by time (raise max_wal_size). Pages that read with a time"
        " limit, such as this one, end their transactions by a rollback."
    )
    has_deadlocks = not rates.is_since_reset and rates.deadlocks > 0
    is_forced = since_reset.forced_checkpoints > max(FEWEST, since_reset.timed_checkpoints)
    return _act_if(has_deadlocks or is_forced), finding, rule


def _wakeups(rows: list[Any]) -> Judgment:
    [(usage, workers, polling)] = rows
    finding = _(
        "The queue of notifications is %(share).0f%% full; %(polling)d of %(workers)d workers poll."
    ) % {"share": 100 * usage, "polling": polling, "workers": workers}
    rule = _(
        "Act when more than %(share)d%% are in use: a session that listens does not read, mostly because its"
        " transaction is open; when the queue is full, commits that notify fail. Workers that poll are behind"
        " a transaction pooler: they find a job after up to POLL_INTERVAL seconds. Let them connect directly"
        " if that is too long."
    )
    return _act_if(usage > MOST_FULL), finding, rule % {"share": round(100 * MOST_FULL)}


def _ring(rows: list[Any]) -> Judgment:
    [(shelf, seconds, retention)] = rows
    facts = {"shelf": shelf, "time": age(seconds), "retention": age(retention)}
    finding = _(
        "History moved on to part %(shelf)d of 8, %(time)s ago. Finished jobs are kept for %(retention)s."
    )
    rule = _(
        "Act when history has not moved on for more than a third of the retention: no worker does the"
        " maintenance, or a long transaction reads the oldest part, which can then not be emptied."
    )
    # It should move after a sixth of the retention.
    return _act_if(seconds > max(retention / 3, SHORTEST_TURN)), finding % facts, rule


_PARTS: dict[str, tuple[Any, Callable[[list[Any]], Judgment]]] = {
    "locks": (gettext_lazy("Lock contention"), _locks),
    "snapshots": (gettext_lazy("Old transactions and held snapshots"), _snapshots),
    "tables": (gettext_lazy("Tables"), _tables),
    "sessions": (gettext_lazy("Connections"), _sessions),
    "traffic": (gettext_lazy("Commits and write-ahead log"), _traffic),
    "wakeups": (gettext_lazy("Wake-ups"), _wakeups),
    "ring": (gettext_lazy("History"), _ring),
}

# How much is committed and written to the write-ahead log. The server only has sums. This process keeps the
# sums of the last minutes, so a page that is refreshed shows the rates since then. The first look
# shows the averages since the sums were reset.

SHORTEST_INTERVAL, LONGEST_INTERVAL = 4.0, 120.0  # seconds between two readings that are compared
_BEFORE_17 = {"view": "pg_stat_bgwriter", "timed": "checkpoints_timed", "forced": "checkpoints_req"}
_SINCE_17 = {"view": "pg_stat_checkpointer", "timed": "num_timed", "forced": "num_requested"}
_SUMS = ("wal_bytes", "commits", "rollbacks", "deadlocks", "timed", "forced")

Traffic = namedtuple(
    "Traffic",
    "seconds is_since_reset wal_bytes_per_second commits_per_second rollbacks_per_second deadlocks"
    " timed_checkpoints forced_checkpoints",
)
_readings: dict[str, deque[Any]] = {}
_lock = Lock()


def _rates(alias: str, now: Any) -> list[Traffic]:
    """Return the rates since the last look, if it can be compared, and those since the sums were reset."""
    before = now._replace(at=now.since, **dict.fromkeys(_SUMS, 0))
    # The sums of the log and of the database may have been reset at different times.
    wal = now.wal_bytes / max(1.0, now.at - now.wal_since)
    since_reset = _between(before, now, is_since_reset=True)._replace(wal_bytes_per_second=wal)
    recent = _recent(alias, now)
    return [recent, since_reset] if recent else [since_reset]


def _recent(alias: str, now: Any) -> Traffic | None:
    """Return the rates since the oldest reading of the last minutes, and keep this one."""
    with _lock:
        kept = _readings.setdefault(alias, deque())
        # The clock may be set back, and an administrator may reset the sums.
        while kept and not (
            now.at - LONGEST_INTERVAL <= kept[0].at <= now.at
            and all(getattr(kept[0], name) <= getattr(now, name) for name in _SUMS)
        ):
            kept.popleft()
        before = kept[0] if kept else None
        if not kept or now.at - kept[-1].at >= SHORTEST_INTERVAL:
            kept.append(now)
    if before is None or now.at - before.at < SHORTEST_INTERVAL:
        return None
    return _between(before, now, is_since_reset=False)


def _between(before: Any, now: Any, *, is_since_reset: bool) -> Traffic:
    seconds = max(1.0, now.at - before.at)
    wal, commits, rollbacks, *counts = (getattr(now, name) - getattr(before, name) for name in _SUMS)
    return Traffic(seconds, is_since_reset, wal / seconds, commits / seconds, rollbacks / seconds, *counts)
