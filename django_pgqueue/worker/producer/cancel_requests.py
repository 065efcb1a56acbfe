"""Read requests to cancel running jobs from their rows, in case a notification was lost. Behind a transaction
pooler there are no notifications.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ... import conf

if TYPE_CHECKING:
    from ...session import Session
    from ..executor.runner import Runner

__all__ = ["CancelRequests"]

_CANCELS_SQL = """
    SELECT id FROM pgqueue_job_live WHERE id = ANY (%s::bigint[]) AND cancel_requested_at IS NOT NULL
"""


class CancelRequests:
    """Reads the rows of jobs that have run longer than a poll interval, once in each interval."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._next_look = 0.0

    def look(self, session: Session, now: float) -> None:
        """If it is time, look for requests and pass them on."""
        if now < self._next_look:
            return
        interval = conf.current().shortest_poll
        self._next_look = now + interval
        ids = [running.row.id for running in self._runner.running() if now - running.started > interval]
        if ids:
            for (job_id,) in session.rows(_CANCELS_SQL, (ids,)):
                self._runner.cancel(job_id)
