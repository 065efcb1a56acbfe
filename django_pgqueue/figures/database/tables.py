"""Size, dead rows and last vacuum of each table of the queue."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.utils.translation import gettext as _

from .part import Part, State, count_text, rows_of

__all__ = ["MOST_DEAD", "Table", "read"]

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


def read(alias: str) -> Part:
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
