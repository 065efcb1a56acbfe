"""The backoffs of queues that have their own settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ... import conf

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Backoffs", "backoff_of", "backoffs"]

#: The base and ceiling of the backoff in seconds for each queue with its own settings; None where it sets
#: none.
Backoffs = dict[str, tuple[float | None, float | None]]


def backoffs(rows: Iterable[tuple[str, float | None, float | None]]) -> Backoffs:
    """Make the backoffs from their names, bases and ceilings."""
    return {name: (base, ceiling) for name, base, ceiling in rows}


def backoff_of(queue_name: str, backoffs: Backoffs) -> tuple[float, float]:
    """Return the base and ceiling of a queue's backoff, in seconds."""
    base, ceiling = backoffs.get(queue_name, (None, None))
    settings = conf.current()
    return (
        settings.backoff_base if base is None else base,
        settings.backoff_ceiling if ceiling is None else ceiling,
    )
