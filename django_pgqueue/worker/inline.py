"""A worker without threads and processes: it runs one due job after another on the calling thread.

It claims, runs and reports with the code of a worker process, but on Django's own connection of the calling
thread. So it also works in an open transaction, such as that of a ``TestCase``, and a debugger can follow it.

Each step claims one job: that of the highest priority, and among those the one that is due first. The groups
of a queue take turns. Weights of queues and groups, and aging, do not count here.
"""

from __future__ import annotations

from datetime import UTC, datetime
from time import monotonic
from typing import TYPE_CHECKING, Any

import psycopg
from django.db import Error, connections, transaction
from psycopg.types.datetime import TimestamptzLoader
from psycopg.types.string import TextLoader

from .. import conf
from ..formatting import get_logger
from ..jobs.claim import claim_sql, split_answer
from ..jobs.finish import FINISH_SQL, Outcome, finish_parameters
from ..maintenance.limits import DeclaredLimits
from ..postgres.clock import heard
from ..postgres.session import Session
from .executor.inline import InlineRunner
from .executor.outcomes import Result
from .options import new_id
from .producer.accounts import Counter, UnknownTasks, log_job
from .producer.claimer import FIRST_DUE_SQL, GROUPS_SQL, PolicyFiller
from .producer.completer import REFUSALS, ProgressWriter, judged, refused
from .producer.orders import UNPAUSE_SQL, orders_sql, read_orders
from .producer.pauses import Pauses, QueueLimits
from .producer.ranges import FirstDue

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from psycopg.abc import Buffer

    from ..jobs.claim import Claimed

logger = get_logger(__name__)
_UNPAUSE_BATCH = 1_000
_DUE_SQL = """
    SELECT queue_name, priority, group_key, task_path FROM pgqueue_job_live
    WHERE id = %s AND status IN ('pending', 'retry') AND run_after <= clock_timestamp()
"""
# The jobs that a report has released, which keep their place (``jobs/claim.py``). In an open
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
        self._unknown_tasks = UnknownTasks()
        self._progress = ProgressWriter(self._runner.changed)
        self._following: list[int] = []  # what may start now; the next claim takes it first
        self._refused = 0  # how many jobs the last claim has found that may not start
        self._last_groups: dict[tuple[str, int], str] = {}

    def run_next(self) -> Result | None:
        """Run the next due job, report how it ended, and return that. Return None if no job is due.

        An exception of the task is in the result, and is not raised.
        """
        self._unknown_tasks.tell(monotonic())
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
        """Write the statistics of what has run, if anything has, and the log of unknown tasks."""
        self._unknown_tasks.tell(monotonic(), all_of_them=True)
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
        if result.outcome.kind == "unknown":
            self._unknown_tasks.met(row, result.outcome.reason)
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
        rows, refusals, *_ = split_answer(answer)
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


# ----------------------------------------------------------------------------
# Where a worker without threads looks for its next job: every range that has a due job, in their order.
#
# A worker process remembers how far it has read each range. This one looks anew before each claim, from the
# start of each range, so that it also finds what was moved into the past.

_START = datetime(1, 1, 2, tzinfo=UTC)
_END = datetime(9999, 12, 30, tzinfo=UTC)
_MOST_GROUPS = 1_000


def due_ranges(
    session: Session,
    queues: list[str] | None,
    exclude: list[str],
    pauses: Pauses,
    last_groups: Mapping[tuple[str, int], str],
) -> dict[str, list[Any]] | None:
    """Return the arrays for the claim of one job; None if no job is due.

    ``last_groups``: the group whose job was claimed last, by queue and priority. The next one follows it.
    """
    if queues is not None:
        queues = [name for name in queues if not pauses.stops(name)]
    if pauses.everything or queues == []:
        return None
    where = (queues, [*exclude, *pauses.queues])
    found = [FirstDue(*row) for row in session.rows(FIRST_DUE_SQL, (*where, [], [], [], [], [], 1))]
    due = sorted(
        (first for first in found if first.due_in <= 0),
        key=lambda first: (-first.priority, first.run_after, first.id),
    )
    grouped = {(first.queue_name, first.priority) for first in due if first.group_key is not None}
    plain = {(first.queue_name, first.priority) for first in due if first.group_key is None}
    ranges: list[tuple[str, int, str | None]] = []
    for key in dict.fromkeys((first.queue_name, first.priority) for first in due):
        if key in grouped:
            ranges += [(*key, name) for name in _turns(session, key, last_groups.get(key, ""), key in plain)]
        else:
            ranges.append((*key, None))
    return _arrays(ranges, _START) if ranges else None


def one_job(queue_name: str, priority: int, group_key: str | None) -> dict[str, list[Any]]:
    """Return the arrays for a claim that finds nothing but the job of this range that it is to take first."""
    return _arrays([(queue_name, priority, group_key)], _END)


def _arrays(ranges: list[tuple[str, int, str | None]], mark: datetime) -> dict[str, list[Any]]:
    groups = [group for _, _, group in ranges]
    arrays: dict[str, list[Any]] = {
        "queues": [queue for queue, _, _ in ranges],
        "priorities": [priority for _, priority, _ in ranges],
        "marks": [mark] * len(ranges),
        "mark_ids": [0] * len(ranges),
    }
    if any(group is not None for group in groups):
        arrays |= {"groups": groups, "quotas": [1] * len(ranges)}
    return arrays


def _turns(session: Session, key: tuple[str, int], last: str, has_plain: bool) -> list[str | None]:
    """Return the groups of a range that have due jobs, beginning after the last one. None: without a group,
    which comes first.
    """
    names = [
        first.group_key
        for row in session.rows(GROUPS_SQL, (*key, *key, "", _MOST_GROUPS))
        if (first := FirstDue(*row)).due_in <= 0 and first.group_key is not None
    ]
    later = [name for name in names if name > last]
    plain: list[str | None] = [None] if has_plain else []
    return [*later, *plain, *(name for name in names if name <= last)]


NOWHERE = _arrays([], _START)
"""The arrays for a claim without ranges."""


# ----------------------------------------------------------------------------
# A session on Django's own connection of this thread: for workers that run jobs in their caller's process.
#
# It sees what the caller sees, also in an open transaction. Each call of ``run`` is one savepoint there, so
# that an error leaves the transaction usable.

_ATTACH_SQL = "SET CONSTRAINTS pgqueue_attach IMMEDIATE; SET CONSTRAINTS pgqueue_attach DEFERRED"


class _UtcText(TimestamptzLoader):
    """Gives times as the text that other sessions get, whichever time zone Django has set."""

    def load(self, data: Buffer) -> Any:
        return super().load(data).astimezone(UTC).isoformat(" ")


class BorrowedSession(Session):
    """Raises errors of psycopg, as other sessions do, and not those that Django makes of them."""

    def __init__(self, alias: str) -> None:
        self.pooled = True  # nothing is prepared or set for it
        self.holds_lock = False
        self._alias = alias
        self._prepared = None

    @property
    def is_lost(self) -> bool:
        """Whether the connection is known to be closed."""
        connection = connections[self._alias].connection
        return connection is None or connection.closed

    def run(self, *statements: tuple[str, Any], durable: bool = False) -> list[list[Any]]:
        """Run statements in one transaction, and return the rows of each."""
        try:
            with transaction.atomic(using=self._alias):
                return [self._rows(*statement) for statement in statements]
        except Error as error:
            if isinstance(error.__cause__, psycopg.Error):
                raise error.__cause__ from None
            raise

    def attach(self) -> None:
        """In an open transaction, do now what its commit would do for jobs that wait for others: tell those
        others (``attach_trigger_v1.sql``). If they end in this transaction, the commit would be too late.
        """
        if connections[self._alias].in_atomic_block:
            self.run((_ATTACH_SQL, None))

    def _rows(self, query: str, parameters: Any = None) -> list[Any]:
        with connections[self._alias].cursor() as cursor:
            adapters = cursor.cursor.adapters
            adapters.register_loader("jsonb", TextLoader)
            adapters.register_loader("timestamptz", _UtcText)
            cursor.execute(query, parameters)
            return cursor.fetchall() if cursor.description else []
