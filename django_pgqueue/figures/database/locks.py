"""Lock contention: who waits for whom on the tables of the queue, since when, and with which statement."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from django.utils.translation import gettext as _

from .part import Part, State, rows_of, statement_text, words

__all__ = ["LONGEST_WAIT", "Wait", "read"]

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


def read(alias: str, *, statements: bool = False) -> Part:
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
        "Act when somebody waits for more than %(limit)s: workers then give up and repeat their statement."
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
