"""The state of the database as the queue needs it: locks, old transactions, dead rows, connections, traffic.

Each part is one bounded statement with a time limit of its own, and has the line that says when to act. It
works for a role without privileges, and says what such a role cannot see.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db import ProgrammingError
from django.utils.translation import gettext as _
from psycopg.errors import InsufficientPrivilege

from ...postgres.timeout import TimeLimitReached
from . import contention, part, storage
from .part import Part, State, words

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Part", "State", "database"]


def database(alias: str, *, statements: bool = False) -> list[Part]:
    """Return the parts. A part that takes too long, or that the role may not read, says so.

    ``statements``: also read the texts of statements, of which some may contain the arguments of jobs.
    """
    parts: dict[str, Callable[[], Part]] = {
        "locks": lambda: contention.read_locks(alias, statements=statements),
        "snapshots": lambda: contention.read_snapshots(alias, statements=statements),
        "tables": lambda: storage.read_tables(alias),
        "sessions": lambda: contention.read_sessions(alias),
        "traffic": lambda: storage.read_traffic(alias),
        "wakeups": lambda: contention.read_wakeups(alias),
        "ring": lambda: storage.read_ring(alias),
    }
    return [_guarded(code, read) for code, read in parts.items()]


def _guarded(code: str, read: Callable[[], Part]) -> Part:
    try:
        return read()
    except TimeLimitReached:
        finding = _("The server did not answer within %(limit)s.") % {"limit": words(part.PATIENCE)}
        return Part(code, State.SLOW, finding, "")
    except ProgrammingError as error:
        if not isinstance(error.__cause__, InsufficientPrivilege):
            raise
        finding = _("The role of this connection may not read it. Grant pg_monitor to see it.")
        return Part(code, State.HIDDEN, finding, "")
