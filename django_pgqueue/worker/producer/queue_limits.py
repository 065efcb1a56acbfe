"""The limits of queues, and of the installation, as a worker knows them.

They are read once a second, by a worker that is about to claim. So a change takes effect within a second.
While there are none, the claim is the plain one. With them, it asks for each limited queue how many jobs
may start (``sql/room_v1.sql``), also by its rate; that is exact, whichever numbers other workers know.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...session import Session

__all__ = ["QueueLimits"]

READ_EVERY = 1.0  # seconds
_SQL = """
    SELECT CASE WHEN name = '*' THEN name ELSE substr(name, length('queue:') + 1) END, running
    FROM pgqueue_limit WHERE name = '*' OR name LIKE 'queue:%%' ORDER BY name
"""


class QueueLimits:
    """The limits that were read last. Times are seconds of the monotonic clock."""

    def __init__(self) -> None:
        self._limits: dict[str, int | None] = {}
        self._next = 0.0

    def __bool__(self) -> bool:
        return bool(self._limits)

    def claim_parameters(self) -> dict[str, list[Any]]:
        """Return the arrays for the claim; none without limits."""
        if not self._limits:
            return {}
        return {"limited_queues": list(self._limits), "limits": list(self._limits.values())}

    def read_if_due(self, session: Session, now: float) -> None:
        """Read them, unless that was less than a second ago."""
        if now >= self._next:
            self._limits = dict(session.rows(_SQL, ()))
            self._next = now + READ_EVERY
