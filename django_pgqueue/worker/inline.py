"""A worker without threads and processes: it runs one due job after another on the calling thread.

It claims, runs and reports with the code of a worker process, but on Django's own connection of the calling
thread. So it also works in an open transaction, such as that of a ``TestCase``, and a debugger can follow it.

Each step claims one job: that of the highest priority, and among those the one that is due first. The groups
of a queue take turns. Weights of queues and groups, and ageing, do not count here.
"""

from __future__ import annotations

import logging
from time import monotonic
from typing import TYPE_CHECKING, Any

from .. import conf
from ..lifecycle.claim import claim_sql
from ..lifecycle.claimed import split_answer
from ..lifecycle.finish import FINISH_SQL, Outcome, finish_parameters
from ..server_time import heard
from ..upkeep.limits import DeclaredLimits
from .borrowed_session import BorrowedSession
from .executor.inline import InlineRunner
from .executor.outcomes import Result
from .inline_places import NOWHERE, due_ranges, one_job
from .options import new_id
from .producer.completer import REFUSALS, judged, refused
from .producer.job_log import log_job
from .producer.orders import UNPAUSE_SQL, orders_sql, read_orders
from .producer.pauses import Pauses
from .producer.policy_filler import PolicyFiller
from .producer.progress_writer import ProgressWriter
from .producer.queue_limits import QueueLimits
from .producer.stats import Counter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..lifecycle.claimed import Claimed

__all__ = ["InlineWorker"]

logger = logging.getLogger(__name__)

_UNPAUSE_BATCH = 1_000
_DUE_SQL = """
    SELECT queue_name, priority, group_key, task_path FROM pgqueue_job_live
    WHERE id = %s AND status IN ('pending', 'retry') AND run_after <= clock_timestamp()
"""
# The jobs that a report has released, which keep their place (``lifecycle/claim.py``). In an open
# transaction, each later claim would take them first, whatever has happened to them.
_TAKE_RELEASED = "SELECT current_setting('pgqueue.released', true), set_config('pgqueue.released', '', true)"


class InlineWorker:
    """Runs due jobs here, one at a time. ``close`` must be called at the end.

    ``worker``: its id, if the caller has registered it. A worker that is not registered may be taken for
    dead, but only by others that see its claims.
    """

    def __init__(
        self,
        alias: str,
        *,
        queues: Sequence[str] = (),
        exclude_queues: Sequence[str] = (),
        worker: int | None = None,
    ) -> None:
        self.alias = alias
        self.worker = new_id() if worker is None else worker
        self.session = BorrowedSession(alias)
        self._queues = list(queues) or None
        self._except = list(exclude_queues)
        self._lease = new_id()
        self._runner = InlineRunner(alias, self.worker)
        self._pauses = Pauses()
        self._queue_limits = QueueLimits()
        self._declared_limits = DeclaredLimits()
        self._policy_filler = PolicyFiller(self._release)
        self._counter = Counter()
        self._progress = ProgressWriter(self._runner.changed)
        self._following: list[int] = []  # what may start now; the next claim takes it first
        self._refused = 0  # how many jobs the last claim has found that may not start
        self._last_groups: dict[tuple[str, int], str] = {}

    def run_next(self) -> Result | None:
        """Run the next due job, report how it ended, and return that. Return None if no job is due.

        An exception of the task is in the result, and is not raised.
        """
        self._declared_limits.write_if_more(self.session, self._runner.known_tasks + 1)
        while (row := self._claim()) is not None:
            if (reason := self._pauses.tasks.get(row.task_path)) is not None:
                self._report(Result(row, Outcome(row.id, row.lease, "paused", reason=reason)))
                continue
            return self._run(row)
        return None

    def run_if_due(self, job_id: int) -> Result | None:
        """Run this job, and report how it ended. Return None if it does not wait, is not due, or may not
        start because of a pause or a limit.
        """
        self._declared_limits.write_if_more(self.session, self._runner.known_tasks + 1)
        self._read_orders()
        found = self.session.rows(_DUE_SQL, (job_id,))
        row = self._claim_from(one_job(*found[0][:3]), [job_id]) if self._may_start(found) else None
        return None if row is None else self._run(row)

    def _may_start(self, found: list[Any]) -> bool:
        return any(
            not self._pauses.stops(queue_name) and task_path not in self._pauses.tasks
            for queue_name, _, _, task_path in found
        )

    def close(self) -> None:
        """Write the statistics of what has run, if anything has."""
        if self._counter.due(float("inf")):
            self._counter.flush(self.session)

    def _run(self, row: Claimed) -> Result:
        rows = self._policy_filler.sort_out([row])
        (row,) = rows or self._policy_filler.fill(self.session)
        try:
            result = self._runner.perform_here(row)
        except BaseException:
            self._release([row])
            raise
        self._progress.write_if_urgent(self.session)
        result = self._report(result)
        self._counter.add(row, result.outcome.kind, row.waited, result.ran)
        log_job(row, result.outcome, row.waited, result.ran, result.failure)
        return result

    def _claim(self) -> Claimed | None:
        """Claim the next job. The gate may refuse what is picked, and then there may be others."""
        while True:
            self._read_orders()
            ranges = due_ranges(self.session, self._queues, self._except, self._pauses, self._last_groups)
            if ranges is None and not self._following:
                return None
            if (row := self._claim_from(ranges or NOWHERE, self._following)) is not None:
                self._last_groups[row.queue_name, row.priority] = row.group_key or ""
                return row
            if not (self._following or self._refused):
                return None

    def _claim_from(self, ranges: dict[str, list[Any]], first: list[int]) -> Claimed | None:
        """Claim one of the jobs that are to be taken first, or else one of the ranges."""
        self._lease += 1
        parameters = {
            **ranges, **self._queue_limits.claim_parameters(), "first": first, "limit": 1,
            "worker": self.worker, "lease": self._lease,
        }  # fmt: skip
        grouped = "groups" in ranges
        statement = claim_sql(self.alias, limited=bool(self._queue_limits), grouped=grouped)
        _, answer = self.session.run((_TAKE_RELEASED, None), (statement, parameters))
        rows, refusals, _ = split_answer(answer)
        self._following = list(refusals.following)
        self._refused = refusals.moved + refusals.ended
        if not rows:
            return None
        heard(self.alias, rows[0].last_attempted_at)
        return rows[0]

    def _read_orders(self) -> None:
        """Learn what is paused, the limits and the backoffs, and let jobs go on whose pause is over."""
        self.session.attach()
        unpause = (UNPAUSE_SQL, (_UNPAUSE_BATCH,))
        while True:
            ((freed,),), orders = self.session.run(unpause, (orders_sql(self.worker, self.worker), None))
            if freed != _UNPAUSE_BATCH:
                break
        told = read_orders(orders)
        self._runner.backoffs = told.backoffs
        self._queue_limits.learn(told.limits)
        self._pauses.learn(told.pauses, monotonic())

    def _report(self, result: Result) -> Result:
        """Report an outcome. If the server refuses it, the job fails."""
        if result.reported:
            return result
        try:
            answer = self._finish(result.outcome)
        except REFUSALS as refusal:
            logger.warning("job %s: the server refused its outcome, so the job fails", result.row.id)
            result = result._replace(outcome=refused(result.outcome, refusal))
            answer = self._finish(result.outcome)
        (result,) = judged([result], answer)
        return result

    def _finish(self, outcome: Outcome) -> list[Any]:
        self.session.attach()
        parameters = finish_parameters([outcome], conf.current().keep_errors)
        answer, ((released, _),) = self.session.run((FINISH_SQL, parameters), (_TAKE_RELEASED, None))
        self._following += [int(job) for job in (released or "").split(",") if job]
        return answer

    def _release(self, rows: list[Claimed]) -> None:
        for row in rows:
            self._report(Result(row, Outcome(row.id, row.lease, "release")))
