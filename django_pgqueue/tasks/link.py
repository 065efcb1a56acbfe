"""``Link``: where a job or a batch is to which a call is tied. Models need it, so it imports nothing."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["HAS_CHILDREN", "IN_BATCH", "Link"]

#: The bits of ``marks`` of a job after which others were enqueued, and of one that belongs to a batch.
HAS_CHILDREN = 2
IN_BATCH = 4


class Link(NamedTuple):
    """A job or a batch to which a call is tied."""

    alias: str | None
    """Its database; None: that of the call."""
    id: int
    is_row: bool = True
    """Whether it is in a database. The jobs of dummy mode are not."""

    def as_link(self) -> Link:
        """Return itself."""
        return self
