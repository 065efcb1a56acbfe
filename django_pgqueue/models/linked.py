"""``job.as_link()``: a job as something that another job waits for."""

from __future__ import annotations

from typing import Any

from django.db import router

from ..link import Link

__all__ = ["Linked"]


class Linked:
    """The method of ``Job`` and ``JobBatch`` that says where they are."""

    def as_link(self) -> Link:
        """Return where this is, for ``task.using(after=...)``. Raise ValueError if it has no id."""
        row: Any = self
        if row.pk is None:
            raise ValueError(
                f"after has a {type(row).__name__} that was not saved, so it has no id. Pass what enqueue() "
                "has returned."
            )
        return Link(row._state.db or router.db_for_write(type(row)), row.pk, not row._state.adding)
