"""Who holds a lock of the queue without any right to it.

Keys of limits and queues are locked for each claim, by advisory locks, which every role that may connect can
take. Such a holder breaks no limit, but the jobs wait. So health names it, and supervisors log it.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from django.db import connections
from django.utils.translation import gettext as _

from ..formatting import age

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

FOREIGN_LOCKS_SQL = Path(__file__).with_suffix(".sql").read_text(encoding="utf-8")


class Holder(NamedTuple):
    """A session that holds such a lock."""

    pid: int
    """The process of the server, for ``pg_terminate_backend()``."""
    role: str
    since: timedelta | None
    """How long its transaction, or else its session, has lasted. None if this role may not see that."""

    def __str__(self) -> str:
        about = {"role": self.role, "pid": self.pid}
        if self.since is None:
            return _("%(role)s (process %(pid)d) holds a lock of the queue without a right to it") % about
        return _(
            "%(role)s (process %(pid)d) holds a lock of the queue without a right to it, for %(age)s at most"
        ) % {**about, "age": age(self.since.total_seconds())}


def foreign_locks(alias: str) -> list[Holder]:
    """Return the sessions that hold one, the oldest first."""
    with connections[alias].cursor() as cursor:
        cursor.execute(FOREIGN_LOCKS_SQL)
        return holders(cursor.fetchall())


def holders(rows: Iterable[Any]) -> list[Holder]:
    """Return the rows of the statement as sessions."""
    return [Holder(*row) for row in rows]
