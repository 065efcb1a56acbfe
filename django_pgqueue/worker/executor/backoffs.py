"""How the queues want retries to be spaced, where they have settings of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ... import conf

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["BACKOFFS_SQL", "Backoffs", "backoff_of", "backoffs"]

#: For each queue with settings of its own: base and ceiling of the backoff in seconds, None where it says
#: nothing.
Backoffs = dict[str, tuple[float | None, float | None]]

BACKOFFS_SQL = """
    SELECT name, backoff_base, backoff_ceiling FROM pgqueue_queue
    WHERE coalesce(backoff_base, backoff_ceiling) IS NOT NULL
"""


def backoffs(rows: Iterable[tuple[str, float | None, float | None]]) -> Backoffs:
    """From the rows of ``BACKOFFS_SQL``."""
    return {name: (base, ceiling) for name, base, ceiling in rows}


def backoff_of(queue_name: str, backoffs: Backoffs) -> tuple[float, float]:
    """Base and ceiling of the backoff in a queue, in seconds."""
    base, ceiling = backoffs.get(queue_name, (None, None))
    settings = conf.current()
    return (
        settings.backoff_base if base is None else base,
        settings.backoff_ceiling if ceiling is None else ceiling,
    )
