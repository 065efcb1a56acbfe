"""Find and claim jobs: which ranges to read, and the claim itself."""

from __future__ import annotations

import logging
from collections import Counter
from time import monotonic
from typing import TYPE_CHECKING, Any

from ...lifecycle.claim import Claimed, Refusals, claim_sql, split_answer
from .pauses import Pauses
from .queue_limits import QueueLimits
from .ranges import FirstDue, Ranges

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...session import Session
    from ..options import WorkerOptions

__all__ = ["Claimer"]

logger = logging.getLogger(__name__)

_FIRST_DUE_SQL = (
    "SELECT queue_name, priority, run_after, id, extract(epoch FROM run_after - clock_timestamp())::float8"
    " FROM pgqueue_first_due_v1(%s::text[], %s::text[], %s::text[], %s::integer[],"
    " %s::timestamptz[], %s::bigint[])"
)


class Claimer:
    """One worker's view of the queues."""

    def __init__(
        self, options: WorkerOptions, worker: int, lease_base: int, pauses: Pauses | None = None
    ) -> None:
        self._alias = options.alias
        self._queues = list(options.queues) or None
        self._except = list(options.exclude_queues)
        self._worker = worker
        self._lease = lease_base
        self._pauses = Pauses() if pauses is None else pauses
        self._ranges = Ranges(self._pauses)
        self._searched = 0.0
        self.queue_limits = QueueLimits()
        self._refusals = Refusals()
        self._following: list[int] = []  # what the next claim takes first
        self.only_refused = False
        """Whether the last claim gave no jobs, but the gate has refused some."""

    @property
    def knows_ranges(self) -> bool:
        """Whether a claim could find any job."""
        return len(self._ranges) > 0

    def claim_statement(self, limit: int) -> tuple[str, dict[str, Any]]:
        """Return the next claim, with a new lease."""
        self._lease += 1
        parameters = {**self._ranges.claim_parameters(), **self.queue_limits.claim_parameters()}
        first, self._following = self._following, []
        return claim_sql(self._alias, limited=bool(self.queue_limits)), {
            **parameters, "first": first, "limit": limit, "worker": self._worker, "lease": self._lease,
        }  # fmt: skip

    def claim(self, session: Session, limit: int) -> list[Claimed]:
        """Claim up to ``limit`` jobs in a round trip that does nothing else."""
        began = monotonic()
        return self.claimed(session.rows(*self.claim_statement(limit)), limit, monotonic() - began)

    def claimed(self, answer: Iterable[Any], limit: int, seconds: float) -> list[Claimed]:
        """Return the claimed rows sorted by priority, run_after and id. UPDATE returns them in any order."""
        rows, self._refusals, early = split_answer(answer)
        self._following += self._refusals.following
        self.only_refused = not rows and any(self._refusals)
        # Times as text sort like times: they have one time zone, one format, and years of four digits.
        if early:
            rows.sort(key=lambda row: (-row.priority, row.id not in early, row.run_after, row.id))
        else:
            rows.sort(key=lambda row: (-row.priority, row.run_after, row.id))
        if not self._refusals.left_behind:
            # The marks must not jump over jobs that are older than one that was taken before its time.
            self._ranges.advance([row for row in rows if row.id not in early] if early else rows, monotonic())
        if logger.isEnabledFor(logging.DEBUG):
            _log_claim(rows, limit, seconds)
        return rows

    def take_refusals(self) -> Refusals:
        """Return once what the gate did with the jobs of the last claim that may not start."""
        refusals, self._refusals = self._refusals, Refusals()
        return refusals

    def may_search(self, now: float) -> bool:
        """Return whether the last search for new ranges is long enough ago to search again under load."""
        return now - self._searched >= 0.05 and self._ranges.may_rescan(now)

    def search(self, session: Session, *, thorough: bool = False) -> tuple[bool, float | None]:
        """Search for new ranges. Return whether a job is due, and the seconds until the next one that is not.

        This rescans from the start if the ration allows it, or if it must be ``thorough``. Otherwise it only
        searches the gaps.
        """
        queues, paused = self._queues, self._pauses
        if queues is not None:
            queues = [name for name in queues if not paused.stops(name)]
        if paused.everything or queues == []:
            return False, None
        started = self._searched = monotonic()
        rescan = thorough or self._ranges.may_rescan(started)
        known = ([], [], [], []) if rescan else self._ranges.known()
        answer = session.rows(_FIRST_DUE_SQL, (queues, [*self._except, *paused.queues], *known))
        now = monotonic()
        if rescan:
            self._ranges.rescanned(started, now)
        found = [FirstDue(*row) for row in answer]
        self._ranges.learn(found, now)
        self._ranges.forget(now)
        later = [first.due_in for first in found if first.due_in > 0]
        return len(later) < len(found), min(later, default=None)


def _log_claim(rows: list[Claimed], limit: int, seconds: float) -> None:
    queues = Counter(row.queue_name for row in rows)
    logger.debug(
        "claimed %d of at most %d jobs in %.1f ms%s",
        len(rows),
        limit,
        seconds * 1000,
        "".join(f", {count} of {name}" for name, count in queues.most_common()),
    )
