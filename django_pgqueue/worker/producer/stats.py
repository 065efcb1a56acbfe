"""Count in memory what ran, for ``JobStat``. The counts are added to the table every ten seconds and at the
end.
"""

from __future__ import annotations

from bisect import bisect_left
from time import monotonic
from typing import TYPE_CHECKING, Any

from ...lifecycle.arrays import number_array, text_array
from ...models.stat import HISTOGRAM_BOUNDS

if TYPE_CHECKING:
    from ...lifecycle.claimed import Claimed
    from ...session import Session

__all__ = ["STAT_SQL", "Counter"]

STAT_SQL = (
    "SELECT pgqueue_stat_v1(%s::timestamptz[], %s::text[], %s::text[], %s::bigint[], %s::bigint[],"
    " %s::bigint[], %s::bigint[], %s::text[], %s::text[], %s::double precision[], %s::double precision[])"
)
FLUSH_EVERY = 10.0  # seconds

# The column in which each kind of outcome is counted. Jobs that were given back unstarted are not counted.
_COLUMNS = {"done": 0, "failed": 1, "retry": 2, "cancelled": 3}


class _Minute:
    __slots__ = ("counts", "run", "run_seconds", "wait", "wait_seconds")

    def __init__(self) -> None:
        self.counts = [0, 0, 0, 0]
        self.wait = [0] * (len(HISTOGRAM_BOUNDS) + 1)
        self.run = [0] * (len(HISTOGRAM_BOUNDS) + 1)
        self.wait_seconds = self.run_seconds = 0.0


class Counter:
    """The counts since the last flush, by minute, queue and task. Only the producer uses it."""

    def __init__(self) -> None:
        self._minutes: dict[tuple[str, str, str], _Minute] = {}
        self._flushed = 0.0

    def add(self, row: Claimed, kind: str, waited: float, ran: float) -> None:
        """Count one attempt in the minute of its claim; ``waited`` and ``ran`` are in seconds."""
        column = _COLUMNS.get(kind)
        if column is None:
            return
        # "2026-11-21 01:38:16+00" up to the minute: this uses the database's clock and parses no time.
        key = (row.last_attempted_at[:16], row.queue_name, row.task_path)
        minute = self._minutes.get(key)
        if minute is None:
            minute = self._minutes[key] = _Minute()
        minute.counts[column] += 1
        minute.wait[bisect_left(HISTOGRAM_BOUNDS, waited)] += 1
        minute.run[bisect_left(HISTOGRAM_BOUNDS, ran)] += 1
        minute.wait_seconds += waited
        minute.run_seconds += ran

    def due(self, now: float) -> bool:
        """Return whether it is time to flush."""
        return bool(self._minutes) and now - self._flushed >= FLUSH_EVERY

    def flush(self, session: Session) -> None:
        """Add the counts to the table."""
        session.run((STAT_SQL, self.take(monotonic())))

    def take(self, now: float) -> tuple[Any, ...]:
        """Return the parameters of ``STAT_SQL`` for all counts, and reset them."""
        keys = sorted(self._minutes)
        minutes = [self._minutes[key] for key in keys]
        self._minutes = {}
        self._flushed = now
        return (
            text_array([f"{key[0]}:00+00" for key in keys]),
            text_array([key[1] for key in keys]),
            text_array([key[2] for key in keys]),
            *(number_array([minute.counts[column] for minute in minutes]) for column in range(4)),
            text_array([number_array(minute.wait) for minute in minutes]),
            text_array([number_array(minute.run) for minute in minutes]),
            number_array([minute.wait_seconds for minute in minutes]),
            number_array([minute.run_seconds for minute in minutes]),
        )
