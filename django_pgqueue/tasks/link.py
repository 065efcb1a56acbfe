"""``Link``: where a job or a batch is to which a call is tied. Models need it, so it imports nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

#: The bits of ``marks`` of a job after which others were enqueued, and of one that belongs to a batch.
HAS_CHILDREN = 2
IN_BATCH = 4


@dataclass(frozen=True, slots=True)
class Link:
    """A job or a batch to which a call is tied."""

    alias: str | None
    """The database that it was read from; None: that of the call."""
    id: int
    is_row: bool = True
    """Whether it is in a database. The jobs of dummy mode are not."""
    row: Any = field(default=None, compare=False, repr=False)
    """The row, if there is one: the router may name another alias for it, which only a query can check."""

    def as_link(self) -> Link:
        """Return itself."""
        return self
