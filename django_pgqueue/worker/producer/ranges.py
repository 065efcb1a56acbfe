"""Where a worker looks for jobs: ranges, each with its mark.

A range is one (queue, priority). Its mark is the pair (run_after, id) below which this worker does not expect
jobs. The claim reads the index from there, so that it does not read the entries of deleted jobs again, which
stay in the index as long as anybody holds an old snapshot.

    unknown --learn(first job)--> known: mark just below its first job, but never later than half a second ago
    known   --advance(rows)--> mark = the last job claimed, but never later than half a second ago
    known   --learn(first job below the mark)--> mark lowered to it
    known   --nothing found for a minute--> forgotten
    known   --its queue is paused--> left out, until the pause ends or it is forgotten

Marks are hints: a wrong mark costs time but never loses a job. A job that becomes claimable gets a
``run_after`` that is not in the past, so it is above the marks. Below a mark there are only jobs that were
committed late (a long bulk insert makes all of its rows late; half a second covers the usual ones) or edited
by hand. ``learn`` finds these with the first jobs of a rescan from the start. A rescan reads the dead
entries, so it is rationed: the next one comes after fifty times its own duration. Between rescans, new ranges
are found by probing only the gaps between known ones.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from .pauses import Pauses

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ...lifecycle.claimed import Claimed

__all__ = ["FORGET_AFTER", "LAG", "FirstDue", "Ranges", "time_of"]

LAG = timedelta(seconds=0.5)
FORGET_AFTER = 60.0  # seconds
RESCAN_RATION = 50.0  # the pause after a rescan, as a multiple of its duration
RESCAN_SOONEST = 0.05  # seconds

_EARLIEST = datetime.min.replace(tzinfo=UTC)
_LATEST = datetime.max.replace(tzinfo=UTC)


class FirstDue(NamedTuple):
    """The first job of a range, as ``pgqueue_first_due_v1`` returns it."""

    queue_name: str
    priority: int
    run_after: str
    id: int
    due_in: float  # seconds
    group_key: str | None = None


class _Range:
    __slots__ = ("due_since", "id", "run_after", "used")

    def __init__(self, run_after: datetime, job: int, now: float) -> None:
        self.run_after = run_after
        self.id = job
        self.used = now
        self.due_since: float | None = None  # when its first job was due, as far as is known


class Ranges:
    """The ranges that a worker knows. Times are the database's; ``now`` is a monotonic clock in seconds."""

    def __init__(self, pauses: Pauses | None = None) -> None:
        self._pauses = Pauses() if pauses is None else pauses
        self._ranges: dict[tuple[str, int], _Range] = {}
        self._next_rescan = 0.0

    def keys(self) -> list[tuple[str, int]]:
        """Return the ranges that may be read."""
        return self._open(list(self._ranges))

    def mark(self, key: tuple[str, int]) -> tuple[datetime, int] | None:
        """Return the mark of a range; None if it is not known."""
        found = self._ranges.get(key)
        return None if found is None else (found.run_after, found.id)

    def waited(self, key: tuple[str, int], now: float) -> float:
        """Return the seconds that the first job of a range has waited, as far as is known."""
        found = self._ranges.get(key)
        return 0.0 if found is None or found.due_since is None else now - found.due_since

    def emptied(self, keys: Iterable[tuple[str, int]]) -> None:
        """Note that a claim has read these ranges to their end."""
        for key in keys:
            if found := self._ranges.get(key):
                found.due_since = None

    def known(self) -> tuple[list[str], list[int], list[datetime], list[int]]:
        """Return the arrays of a search for new ranges in the gaps."""
        keys = self._open(list(self._ranges))
        ranges = [self._ranges[key] for key in keys]
        return (
            [key[0] for key in keys],
            [key[1] for key in keys],
            [found.run_after for found in ranges],
            [found.id for found in ranges],
        )

    def advance(self, rows: Sequence[Claimed], now: float) -> None:
        """Move the marks up to the last rows claimed. ``rows`` are in the order of the claim."""
        if not rows:
            return
        latest = time_of(rows[0].last_attempted_at) - LAG
        last = {(row.queue_name, row.priority): row for row in rows}
        for key, row in last.items():
            found = self._ranges.get(key)
            if found is None:  # pragma: no cover - it cannot be forgotten in between on one thread
                continue
            reached = (time_of(row.run_after), row.id)
            if reached[0] > latest:
                reached = (latest, 0)
            if reached > (found.run_after, found.id):
                found.run_after, found.id = reached
            found.used = now
            found.due_since = now - row.waited

    def learn(self, firsts: Iterable[FirstDue], now: float) -> None:
        """Add new ranges, and lower the marks of ranges that have a job below their mark."""
        for first in firsts:
            key = (first.queue_name, first.priority)
            start = (time_of(first.run_after), first.id - 1)
            if first.due_in > -LAG.total_seconds():
                # A job that is enqueued next, or committed late, may be due before this first job.
                start = (start[0] - timedelta(seconds=first.due_in) - LAG, 0)
            found = self._ranges.get(key)
            if found is None:
                found = self._ranges[key] = _Range(*start, now)
            found.used = now
            found.due_since = now + first.due_in if first.due_in < 0 else None
            if start < (found.run_after, found.id):
                found.run_after, found.id = start

    def forget(self, now: float) -> None:
        """Remove the ranges in which nothing was found for a minute."""
        old = [key for key, found in self._ranges.items() if now - found.used > FORGET_AFTER]
        for key in old:
            del self._ranges[key]

    def touch(self, key: tuple[str, int], now: float) -> None:
        """Note that a range is in use."""
        if found := self._ranges.get(key):
            found.used = now

    def raise_to(self, key: tuple[str, int], moment: datetime, job: int) -> None:
        """Raise the mark of a range."""
        found = self._ranges.get(key)
        if found is not None and (moment, job) > (found.run_after, found.id):
            found.run_after, found.id = moment, job

    def may_rescan(self, now: float) -> bool:
        """Return whether the last rescan is long enough ago."""
        return now >= self._next_rescan

    def rescanned(self, started: float, now: float) -> None:
        """Note how long a rescan from the start has taken."""
        self._next_rescan = now + max(RESCAN_SOONEST, (now - started) * RESCAN_RATION)

    def _open(self, keys: list[tuple[str, int]]) -> list[tuple[str, int]]:
        """Return the ranges whose queues are not paused."""
        if not self._pauses:
            return keys
        return [key for key in keys if not self._pauses.stops(key[0])]


def time_of(text: str) -> datetime:
    """Parse a time of the server. The years that Python cannot store become its first or last time."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:  # edited by hand: infinity, or a year before 1 or after 9999
        return _EARLIEST if text.startswith("-") or text.endswith("BC") else _LATEST
