"""Where a job is: its public id, and the ``Link`` of a call that is tied to it. Models need both."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from django.db import DEFAULT_DB_ALIAS

from ..encoding import MAX_BIGINT, whole_number

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


#: The longest alias with which every id is shorter than 64 characters, which `django.tasks` promises.
LONGEST_ALIAS = 63 - len(f":{MAX_BIGINT}")


def public_id(job_id: int, alias: str | None) -> str:
    """Return a job's public id: ``"5"`` in the database ``default``, and ``"other:5"`` in another one.

    It contains the alias, not the backend, so that it means the same job whichever backend is asked.
    """
    return str(job_id) if alias in (None, DEFAULT_DB_ALIAS) else f"{alias}:{job_id}"


def parse_id(public: str) -> tuple[str, int]:
    """Return the alias and the number of an id. Raise ValueError."""
    alias, colon, number = public.rpartition(":")  # an alias may contain colons, a number cannot
    job_id = whole_number(number, 1)
    if job_id is None or (colon and not alias):
        raise ValueError(
            f"{public!r} is not the id of a job. An id looks like '5', or 'other:5' for another database."
        )
    return alias or DEFAULT_DB_ALIAS, job_id
