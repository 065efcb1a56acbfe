"""Close the reported jobs for this worker: they are no longer in flight, they are counted, and they are
logged.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

from .job_log import log_job
from .stats import Counter
from .unknown_tasks import UnknownTasks

if TYPE_CHECKING:
    from ...session import Session
    from ..executor.outcomes import Result
    from .in_flight import InFlight
    from .lifetime import Lifetime

__all__ = ["Accounts"]


class Accounts:
    """The accounts of one worker process."""

    def __init__(self, in_flight: InFlight, lifetime: Lifetime) -> None:
        self._in_flight = in_flight
        self._lifetime = lifetime
        self._counter = Counter()
        self._unknown_tasks = UnknownTasks()

    def close(self, results: list[Result]) -> None:
        """Close the jobs with these results, which have been reported."""
        for row, outcome, ran, _, failure, _ in results:
            held = self._in_flight.drop(row)
            if outcome.kind in {"release", "paused"}:
                self._lifetime.claimed -= 1
                continue
            began = outcome.started or 0.0
            waited = row.waited + (began - held.since if held and began else 0.0)
            self._counter.add(row, outcome.kind, max(0.0, waited), ran)
            log_job(row, outcome, waited, ran, failure)
            if outcome.kind == "unknown":
                self._unknown_tasks.met(row, outcome.reason)
            else:
                self._lifetime.executed += 1

    def write_if_due(self, session: Session, now: float) -> None:
        """Add the counts to the table of statistics and to the log, if it is time."""
        self._unknown_tasks.tell(now)
        if self._counter.due(now):
            self._counter.flush(session)

    def write(self, session: Session) -> None:
        """Add the counts now, because the worker ends."""
        self._unknown_tasks.tell(monotonic(), all_of_them=True)
        self._counter.flush(session)
