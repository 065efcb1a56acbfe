"""Jobs that this worker has claimed but will not run. They are requeued, or put aside because their task is
paused, without counting an attempt.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ...lifecycle.finish import Outcome
from ..executor import outcomes
from ..executor.outcomes import Result

if TYPE_CHECKING:
    from ...lifecycle.claimed import Claimed
    from ..executor.runner import Runner
    from ..executor.threads import Executor
    from .completer import Completer
    from .in_flight import InFlight
    from .pauses import Pauses

__all__ = ["Returns"]

logger = logging.getLogger(__name__)


class Returns:
    """Adds these jobs to the outcomes of the next report."""

    def __init__(
        self,
        worker: int,
        runner: Runner,
        executor: Executor,
        in_flight: InFlight,
        completer: Completer,
        pauses: Pauses,
    ) -> None:
        self._worker = worker
        self._runner = runner
        self._executor = executor
        self._in_flight = in_flight
        self._completer = completer
        self._pauses = pauses

    def release(self, rows: list[Claimed], reason: str | None = None) -> None:
        """Requeue rows that will not run here."""
        self._completer.add(
            [Result(row, Outcome(row.id, row.lease, "release", reason=reason)) for row in rows]
        )

    def put_aside(self, rows: list[Claimed]) -> list[Claimed]:
        """Return the rows that are not paused. Put aside those of paused tasks; requeue those of paused
        queues.
        """
        if not self._pauses:
            return rows
        tasks, stops = self._pauses.tasks, self._pauses.stops
        self._completer.add(
            [
                Result(row, Outcome(row.id, row.lease, "paused", reason=tasks[row.task_path]))
                for row in rows
                if row.task_path in tasks
            ]
        )
        rows = [row for row in rows if row.task_path not in tasks]
        self.release([row for row in rows if stops(row.queue_name)])
        return [row for row in rows if not stops(row.queue_name)]

    def put_unstarted_aside(self) -> None:
        """Do so with the rows in the executor that have not been started. The others stay there."""
        self._executor.submit(self.put_aside(self._executor.take_back()), 0.0)

    def release_unstarted(self) -> None:
        """Requeue the rows in the executor that have not been started."""
        self.release(self._executor.take_back())

    def abandon_rest(self) -> None:
        """At the end, requeue the jobs that still run. Fail those that must not run twice or are overdue."""
        rest = self._in_flight.rest(self._completer.ids())
        if rest:
            logger.warning("requeuing jobs that did not finish within the grace period: %d", len(rest))
            once = [row for row in rest if row.on_lost == "fail" and self._in_flight.may_have_begun(row)]
            self._completer.add([Result(row, outcomes.stopped(row, self._worker)) for row in once])
            self.release([row for row in rest if row not in once], "its worker was stopped")
        # Last of all: such a job runs until the process ends, and its next attempt may start before that.
        overdue = list(self._in_flight.overdue.values())
        self._completer.add([self._runner.overdue(job) for job in overdue])
