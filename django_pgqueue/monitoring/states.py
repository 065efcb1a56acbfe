"""How many jobs are in each state, for the list of jobs. The history is never counted.

The newest ``MOST`` jobs that are not over are read, and as many of the history. If there are no more, the
counts are exact. If there are more, the states that have an index are counted up to ``MOST``, and the others
are estimated by the planner. So this takes as long with ten million jobs as with twenty thousand. All who
look at a list within a few seconds share one reading.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import Any

from django.db import connections

from ..formatting import about, number
from ..models.job import Status
from ..postgres import fetch_rows, fetch_value
from ..postgres.timeout import within
from ..tasks.registry import KEPT_QUEUES
from .queues import MOST

PATIENCE = 0.5  # seconds that one statement may take
SHARED_FOR = 5.0  # seconds

_LIVE, _BUSY, _RING, _KEPT = (
    Path(__file__).with_name(f"states_{name}.sql").read_text(encoding="utf-8")
    for name in ("live", "busy", "ring", "kept")
)
_KEPT = KEPT_QUEUES + _KEPT
#: An index is read no further than needed, and a bitmap would read it to its end. The estimate of a parallel
#: plan is that of one process.
_PLANS = """
    SET LOCAL enable_seqscan TO off;
    SET LOCAL enable_bitmapscan TO off;
    SET LOCAL max_parallel_workers_per_gather TO 0
"""
_ESTIMATE = "EXPLAIN (FORMAT JSON) SELECT FROM pgqueue_job WHERE shelf {shelves} AND status = '{status}'"


@dataclass(frozen=True, slots=True)
class StateCount:
    """How many jobs are in one state."""

    number: int
    is_exact: bool = True

    def __str__(self) -> str:
        return number(self.number) if self.is_exact else about(self.number)

    def __add__(self, other: StateCount) -> StateCount:
        return StateCount(self.number + other.number, self.is_exact and other.is_exact)


Counts = dict[str, StateCount]


def state_counts(alias: str) -> Counts:
    """Return the counts by status. A status that could not be counted in time is missing."""
    found = within(alias, PATIENCE, lambda: _live(alias)) or {}
    ring = within(alias, PATIENCE, lambda: _ring(alias))
    kept = within(alias, PATIENCE, lambda: _exact_up_to(MOST, alias, "= 9", _read(alias, _KEPT)))
    if kept is not None:
        found[Status.FAILED.value] = kept[Status.FAILED.value]  # there are none in the ring
        if ring is not None:
            found.update({status: ring[status] + kept[status] for status in ring})
    return found


_lock = Lock()
_shared: dict[str, tuple[float, Counts]] = {}


def shared_counts(alias: str) -> Counts:
    """Return the counts that all viewers in this process share for some seconds.

    Race: they get old for several threads at once. One of them reads, and the others wait for it.
    """
    with _lock:
        until, counts = _shared.get(alias, (0.0, {}))
        if monotonic() >= until:
            counts = state_counts(alias)
            _shared[alias] = monotonic() + SHARED_FOR, counts
        return counts


def _live(alias: str) -> Counts:
    """Count the jobs that are not over."""
    seen = {status.value: 0 for status in Status if not status.is_terminal} | _read(alias, _LIVE)
    if sum(seen.values()) <= MOST:
        return _exact_up_to(MOST, alias, "= 0", seen)
    busy = _read(alias, _BUSY)
    waiting = {status: count for status, count in seen.items() if status not in busy}
    return _exact_up_to(MOST, alias, "= 0", busy) | _exact_up_to(-1, alias, "= 0", waiting)


def _ring(alias: str) -> Counts:
    """Count the jobs in the ring of history, where no failed jobs are."""
    seen = {Status.DONE.value: 0, Status.CANCELLED.value: 0} | _read(alias, _RING)
    return _exact_up_to(MOST if sum(seen.values()) <= MOST else -1, alias, "BETWEEN 1 AND 8", seen)


def _read(alias: str, statement: str) -> dict[str, int]:
    with connections[alias].cursor() as cursor:
        cursor.execute(_PLANS)
    return dict(fetch_rows(alias, statement, {"most": MOST + 1}))


def _exact_up_to(most: int, alias: str, shelves: str, seen: dict[str, int]) -> Counts:
    """Return the numbers that were seen. Those above ``most`` are at least what the planner estimates."""
    found = {}
    for status, count in seen.items():
        found[status] = StateCount(count)
        if count > most:
            plan = fetch_value(alias, _ESTIMATE.format(shelves=shelves, status=status))
            # The planner never expects less than one row of a leaf.
            rows = sum(rows for rows in _rows(plan[0]["Plan"]) if rows > 1)
            found[status] = StateCount(max(count, rows), is_exact=False)
    return found


def _rows(plan: dict[str, Any]) -> Iterator[int]:
    """Yield the estimate for each leaf."""
    if "Plans" not in plan:
        yield plan["Plan Rows"]
    for below in plan.get("Plans", ()):
        yield from _rows(below)
