"""Finding and claiming jobs: which ranges to read, and the claim itself."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Any

from ...lifecycle.claim import Claimed, claim_sql
from .ranges import FirstDue, Ranges

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...session import Session
    from ..options import WorkerOptions

__all__ = ["Claimer"]

_FIRST_DUE_SQL = (
    "SELECT queue_name, priority, run_after, id, extract(epoch FROM run_after - clock_timestamp())::float8"
    " FROM pgqueue_first_due_v1(%s::text[], %s::text[], %s::text[], %s::integer[],"
    " %s::timestamptz[], %s::bigint[])"
)


class Claimer:
    """One worker's view of the queues."""

    def __init__(self, options: WorkerOptions, worker: int, lease_base: int) -> None:
        self._alias = options.alias
        self._queues = list(options.queues) or None
        self._except = list(options.exclude_queues)
        self._worker = worker
        self._lease = lease_base
        self._ranges = Ranges()
        self._searched = 0.0

    @property
    def knows_ranges(self) -> bool:
        """Whether a claim could find anything at all."""
        return len(self._ranges) > 0

    def claim_statement(self, limit: int) -> tuple[str, dict[str, Any]]:
        """The next claim, under a lease of its own."""
        self._lease += 1
        parameters = self._ranges.claim_parameters()
        return claim_sql(self._alias), {
            **parameters, "limit": limit, "worker": self._worker, "lease": self._lease,
        }  # fmt: skip

    def claim(self, session: Session, limit: int) -> list[Claimed]:
        """Claim up to ``limit`` jobs, and nothing else in the same round trip."""
        return self.claimed(session.rows(*self.claim_statement(limit)))

    def claimed(self, answer: Iterable[Any]) -> list[Claimed]:
        """The rows of a claim in its order: priority, run_after, id. UPDATE returns them in any."""
        rows = [Claimed._make(row) for row in answer]
        # Times as text sort as times: one zone, one format, years of four digits.
        rows.sort(key=lambda row: (-row.priority, row.run_after, row.id))
        self._ranges.advance(rows, monotonic())
        return rows

    def may_search(self, now: float) -> bool:
        """Whether the last search for new ranges is long enough ago to look for one under load."""
        return now - self._searched >= 0.05 and self._ranges.may_rescan(now)

    def search(self, session: Session, *, thorough: bool = False) -> tuple[bool, float | None]:
        """Look for new ranges; whether any job is due, and the seconds until the next one that is not.

        A rescan from the start if the ration allows it, or if it must be ``thorough``; else the gaps only.
        """
        started = self._searched = monotonic()
        rescan = thorough or self._ranges.may_rescan(started)
        known = ([], [], [], []) if rescan else self._ranges.known()
        answer = session.rows(_FIRST_DUE_SQL, (self._queues, self._except, *known))
        now = monotonic()
        if rescan:
            self._ranges.rescanned(started, now)
        found = [FirstDue(*row) for row in answer]
        self._ranges.learn(found, now)
        self._ranges.forget(now)
        later = [first.due_in for first in found if first.due_in > 0]
        return len(later) < len(found), min(later, default=None)
