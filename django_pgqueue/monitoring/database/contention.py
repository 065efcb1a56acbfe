"""Lock contention: who waits for whom on the tables of the queue, since when, and with which statement."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from django.utils.translation import gettext as _

from .part import Part, State, rows_of, statement_text, words

LONGEST_WAIT = 2.0  # seconds: the lock_timeout of the workers


@dataclass(frozen=True, slots=True)
class Wait:
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


def read_locks(alias: str, *, statements: bool = False) -> Part:
    """Return who waits for whom."""
    waits = [_wait(row) for row in rows_of(alias, "locks", statements=statements)]
    longest = max((wait.seconds for wait in waits), default=0.0)
    waiting = len({wait.pid for wait in waits})
    finding = _("Nobody waits for a lock.")
    if waits:
        finding = _("%(count)d sessions wait for a lock, the longest for %(time)s.") % {
            "count": waiting,
            "time": words(longest),
        }
    rule = _(
        "Act when a session waits for more than %(limit)s: workers then give up and repeat their statement."
        " End the session that blocks the others (pg_terminate_backend), or make its transactions shorter."
    ) % {"limit": words(LONGEST_WAIT)}
    state = State.ACT if longest > LONGEST_WAIT else State.FINE
    return Part("locks", state, finding, rule, waits)


def _wait(row: tuple[Any, ...]) -> Wait:
    wait = Wait(*row)
    return replace(
        wait,
        statement=statement_text(wait.statement),
        blocker_statement=statement_text(wait.blocker_statement),
    )


# ----------------------------------------------------------------------------
# Held snapshots: the transactions, prepared transactions and replication slots that keep dead rows.

OLDEST = 300.0  # seconds


@dataclass(frozen=True, slots=True)
class Held:
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


def read_snapshots(alias: str, *, statements: bool = False) -> Part:
    """Return what holds snapshots, the oldest first."""
    rows = rows_of(alias, "snapshots", statements=statements)
    held = [replace(each, statement=statement_text(each.statement)) for each in (Held(*row) for row in rows)]
    ages = [each.seconds for each in held if each.seconds is not None]
    hidden = sum(not each.is_visible for each in held)
    found = [_("No transaction is open.")]
    if ages:
        found = [_("The oldest transaction has been open for %(time)s.") % {"time": words(max(ages))}]
    elif held:
        found = []
    slots = sum(each.kind == "slot" and each.is_too_old for each in held)
    if slots:
        found.append(_("Replication slots that nobody uses: %(count)d.") % {"count": slots})
    state = State.ACT if any(each.is_too_old for each in held) else State.FINE
    if hidden:
        found.append(
            _("The ages of %(count)d sessions are not visible. Grant pg_read_all_stats to see them.")
            % {"count": hidden}
        )
        state = State.HIDDEN if state == State.FINE else state
    rule = _(
        "Act when a transaction has been open for more than %(limit)s, or when a replication slot is not"
        " used: VACUUM keeps all rows that died since, in every table. End the session or roll the prepared"
        " transaction back, drop the slot, and set idle_in_transaction_session_timeout for web processes."
    ) % {"limit": words(OLDEST)}
    return Part("snapshots", state, " ".join(found), rule, held)


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


def read_sessions(alias: str) -> Part:
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
    state = State.ACT if used > MOST_USED * allowed else State.FINE
    return Part("sessions", state, finding, rule, programs)


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


def read_wakeups(alias: str) -> Part:
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
    state = State.ACT if found.queue_usage > MOST_FULL else State.FINE
    return Part("wakeups", state, finding, rule, [found])
