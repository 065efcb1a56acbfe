"""How many jobs are in each state, for the list of jobs. The history is never counted.

Each state is counted up to ``MOST``, and the ring of history is read up to as many jobs, so this takes as
long with ten million jobs as with twenty thousand. All who look at a list within a few seconds share one
reading.
"""

from __future__ import annotations

from dataclasses import dataclass
from threading import Lock
from time import monotonic

from django.db import connections

from ..formatting import number
from ..models.job import Status
from ..postgres import fetch_rows, sql_of
from ..postgres.timeout import within
from ..tasks.registry import KEPT_QUEUES
from .depth import MOST

PATIENCE = 0.5  # seconds that one statement may take
SHARED_FOR = 5.0  # seconds

_LIVE, _RING, _KEPT = (sql_of(__file__, f"states_{name}") for name in ("live", "ring", "kept"))
_KEPT = KEPT_QUEUES + _KEPT
#: An index is read no further than needed, and a bitmap would read it to its end.
_PLANS = "SET LOCAL enable_seqscan TO off; SET LOCAL enable_bitmapscan TO off"


@dataclass(frozen=True, slots=True)
class StateCount:
    """How many jobs are in one state; at least so many if it is not exact."""

    number: int
    is_exact: bool = True

    def __str__(self) -> str:
        return number(self.number) + ("" if self.is_exact else "+")

    def __add__(self, other: StateCount) -> StateCount:
        return StateCount(self.number + other.number, self.is_exact and other.is_exact)


Counts = dict[str, StateCount]


def state_counts(alias: str) -> Counts:
    """Return the counts by status. A status that could not be counted in time is missing."""
    found = within(alias, PATIENCE, lambda: _read(alias, _LIVE)) or {}
    ring = within(alias, PATIENCE, lambda: _ring(alias))
    kept = within(alias, PATIENCE, lambda: _read(alias, _KEPT))
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


def _ring(alias: str) -> Counts:
    """Count the jobs in the ring of history, where no failed jobs are."""
    zero = StateCount(0)
    found = {Status.DONE.value: zero, Status.CANCELLED.value: zero} | _read(alias, _RING)
    total = sum(found.values(), zero)
    return {
        status: StateCount(count.number, total.is_exact and total.number <= MOST)
        for status, count in found.items()
    }


def _read(alias: str, statement: str) -> Counts:
    """Return what a statement has counted; one more than ``MOST`` says that there are more."""
    with connections[alias].cursor() as cursor:
        cursor.execute(_PLANS)
    rows = fetch_rows(alias, statement, {"most": MOST + 1})
    return {
        status: StateCount(min(count, MOST), count <= MOST) for status, count in rows if count is not None
    }
