"""What is paused, as far as this worker knows (``orders``).

    queue, everything   the claim leaves these ranges out, and so does the search: no row is touched
    task                jobs that are claimed are put aside: blocked, without an attempt spent

The end of a pause is a time on the clock of the database. It is read as the seconds that are left, so the
clock of this machine need not agree.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ...jobs.claim import BATCH
from ..executor.outcomes import REASON_LIMIT

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ...jobs.claim import Claimed

_NEVER = float("inf")


class PauseRow(NamedTuple):
    """A row of the table of pauses."""

    kind: str
    name: str
    author: str
    reason: str
    seconds_left: float | None


class Pauses:
    """The pauses in force. ``now`` is a monotonic clock in seconds."""

    def __init__(self) -> None:
        self.everything = False
        self.queues: set[str] = set()
        self.tasks: dict[str, str] = {}
        """The paused tasks, and the words for their jobs."""
        self.next_end = _NEVER
        """When the first of these pauses ends."""
        self._ends: dict[tuple[str, str], float] = {}
        self._put_aside = 0

    def __bool__(self) -> bool:
        """Return whether anything is paused."""
        return bool(self._ends)

    def stops(self, queue_name: str) -> bool:
        """Return whether no jobs of this queue are to be started."""
        return self.everything or queue_name in self.queues

    def learn(self, rows: Iterable[PauseRow], now: float) -> tuple[bool, set[str]]:
        """Replace what is known. Return whether a pause has begun, and the kinds of those that have ended."""
        before = set(self._ends)
        ended = {row.kind for row in rows if row.seconds_left is not None and row.seconds_left <= 0}
        rows = [row for row in rows if row.seconds_left is None or row.seconds_left > 0]
        self._ends = {
            (row.kind, row.name): _NEVER if row.seconds_left is None else now + row.seconds_left
            for row in rows
        }
        self.tasks = {row.name: _words(row) for row in rows if row.kind == "task"}
        self._describe()
        return bool(self._ends.keys() - before), ended | {kind for kind, _ in before - self._ends.keys()}

    def expire(self, now: float) -> set[str]:
        """Forget the pauses whose end has passed, and return their kinds."""
        over = [key for key, end in self._ends.items() if end <= now]
        for key in over:
            del self._ends[key]
            if key[0] == "task":
                del self.tasks[key[1]]
        self._describe()
        return {kind for kind, _ in over}

    def limit(self, free: int) -> int:
        """Return how many jobs to claim with so much room.

        It is more after claims that returned only jobs of paused tasks: a million of them, which need no
        slot, must not hold up the jobs behind them.
        """
        return min(max(BATCH, free), free << min(self._put_aside, 9))

    def note(self, claimed: Sequence[Claimed], runs: Sequence[Claimed]) -> None:
        """Note how many of the ``claimed`` jobs are to run."""
        self._put_aside = self._put_aside + 1 if claimed and not runs else 0

    def _describe(self) -> None:
        self.everything = ("all", "") in self._ends
        self.queues = {name for kind, name in self._ends if kind == "queue"}
        self.next_end = min(self._ends.values(), default=_NEVER)


def _words(row: PauseRow) -> str:
    author = f" by {row.author}" if row.author else ""
    reason = f": {row.reason}" if row.reason else ""
    return f"paused{author}{reason}"[:REASON_LIMIT]


# ----------------------------------------------------------------------------
# The limits of queues, and of the installation, as a worker knows them.
#
# They are read with the orders (``orders``): at most a second before each claim. So a change takes effect
# within a second. While there are none, the claim is the plain one. With them, it asks for each limited
# queue how many jobs may start (``sql/room_v1.sql``), also by its rate; that is exact, whichever numbers
# other workers know.

#: A part of the statement of ``orders``, with its columns.
LIMITS_SQL = """
    SELECT 'limit', CASE WHEN name = '*' THEN name ELSE substr(name, length('queue:') + 1) END, '', '',
        concurrency::float8, NULL
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
