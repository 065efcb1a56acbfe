"""The backoffs of queues that have their own settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ... import conf

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["BACKOFFS_SQL", "Backoffs", "backoff_of", "backoffs"]

#: The base and ceiling of the backoff in seconds for each queue with its own settings; None where it sets
#: none.
Backoffs = dict[str, tuple[float | None, float | None]]

BACKOFFS_SQL = """
    SELECT name, backoff_base, backoff_ceiling FROM pgqueue_queue
    WHERE coalesce(backoff_base, backoff_ceiling) IS NOT NULL
"""


def backoffs(rows: Iterable[tuple[str, float | None, float | None]]) -> Backoffs:
    """Make the backoffs from the rows of ``BACKOFFS_SQL``."""
    return {name: (base, ceiling) for name, base, ceiling in rows}


def backoff_of(queue_name: str, backoffs: Backoffs) -> tuple[float, float]:
    """Return the base and ceiling of a queue's backoff, in seconds."""
    base, ceiling = backoffs.get(queue_name, (None, None))
    settings = conf.current()
    return (
        settings.backoff_base if base is None else base,
        settings.backoff_ceiling if ceiling is None else ceiling,
    )
