"""Connections by program against those that the server allows."""

from __future__ import annotations

from dataclasses import dataclass

from django.utils.translation import gettext as _

from .part import Part, State, rows_of

__all__ = ["MOST_USED", "Program", "read"]

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


def read(alias: str) -> Part:
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
