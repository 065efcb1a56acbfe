"""The limits of queues, and of the installation, as a worker knows them.

They are read with the orders (``orders``): at most a second before each claim. So a change takes effect
within a second. While there are none, the claim is the plain one. With them, it asks for each limited queue
how many jobs may start (``sql/room_v1.sql``), also by its rate; that is exact, whichever numbers other
workers know.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["LIMITS_SQL", "QueueLimits"]

#: A part of the statement of ``orders``, with its columns.
LIMITS_SQL = """
    SELECT 'limit', CASE WHEN name = '*' THEN name ELSE substr(name, length('queue:') + 1) END, '', '',
        running::float8, NULL
    FROM pgqueue_limit WHERE name = '*' OR starts_with(name, 'queue:')
"""


class QueueLimits:
    """The limits that were read last."""

    def __init__(self) -> None:
        self._limits: dict[str, int | None] = {}

    def __bool__(self) -> bool:
        return bool(self._limits)

    def claim_parameters(self) -> dict[str, list[Any]]:
        """Return the arrays for the claim; none without limits."""
        if not self._limits:
            return {}
        return {"limited_queues": list(self._limits), "limits": list(self._limits.values())}

    def learn(self, limits: Iterable[tuple[str, float | None]]) -> None:
        """Replace what is known. A queue that has only a rate has no number."""
        self._limits = {name: None if most is None else int(most) for name, most in sorted(limits)}
