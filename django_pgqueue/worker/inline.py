"""A worker without threads and processes: it runs one due job after another on the calling thread.

It claims, runs and reports with the code of a worker process, but on Django's own connection of the calling
thread, so it also works in an open transaction, such as that of a ``TestCase``, and a debugger can follow it.
What is missing is what needs another thread or process: timeouts, and the isolation of jobs that have
crashed. The connections are not tidied up, because they belong to the caller.

Each step claims one job by its id: that of the highest priority, and among those the one that is due first.
The groups of a queue take turns. Weights of queues and groups, and aging, do not count here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from datetime import UTC, datetime
from time import monotonic
from typing import Any

import psycopg
from asgiref.sync import async_to_sync
from django.db import Error, connections, transaction
from psycopg.abc import Buffer
from psycopg.pq import TransactionStatus
from psycopg.types.datetime import TimestamptzLoader
from psycopg.types.string import TextLoader

from ..formatting import get_logger
from ..jobs.claim import Answer, Claimed, claim_sql, split_answer
from ..jobs.finish import Outcome, finish_statement
from ..maintenance.limits import DeclaredLimits
from ..postgres import sql_of
from ..postgres.clock import heard
from ..postgres.session import Session
from .executor.connections import has_written
from .executor.outcomes import Result
from .executor.runner import Runner
from .executor.running_job import RunningJob
from .options import new_id
from .producer.claimer import FIRST_DUE_SQL, GROUPS_SQL, fill_policies
from .producer.inbox import UNPAUSE_BATCH, UNPAUSE_SQL, Orders, orders_sql
from .producer.ranges import FirstDue
from .producer.reporter import Accounts, judged, report_or_fail
from .started_jobs import StartedJobs

logger = get_logger(__name__)
_MOST_GROUPS = 1_000
# The status is a calculation for the reason that jobs/claim.sql names.
_DUE_SQL = sql_of(__file__, "due")
# The jobs that a report has released, which keep their place (``jobs/claim.py``). In an open transaction,
# each later claim would take them first, whatever has happened to them.
_TAKE_RELEASED = "SELECT current_setting('pgqueue.released', true), set_config('pgqueue.released', '', true)"
#: The mark of a range that is not read.
_END = datetime(9999, 12, 30, tzinfo=UTC)


class InlineWorker:
    """Runs due jobs here, one at a time. ``close`` must be called at the end.

    A worker that is not registered may be taken for dead, but only by others that see its claims.
    """

    def __init__(self, alias: str, *, queues: Sequence[str] = (), exclude_queues: Sequence[str] = ()) -> None:
        self.alias = alias
        self.worker = new_id()
        self.session = BorrowedSession(alias)
        self._queues = list(queues) or None
        self._except = list(exclude_queues)
        self._lease = new_id()
        self.runner = InlineRunner(alias, self.worker, StartedJobs.private(1))
        self._orders = Orders()
        self._declared_limits = DeclaredLimits()
        self._accounts = Accounts()
        self._following: list[int] = []  # what may start now, before all others of its priority
        self._last_groups: dict[tuple[str, int], str] = {}

    def run_next(self) -> Result | None:
        """Run the next due job, report how it ended, and return that. Return None if no job is due.

        An exception of the task is in the result, and is not raised.
        """
        self._accounts.unknown_tasks.log(monotonic())
        self._declared_limits.write(self.session, self.runner.known_tasks + 1)
        while (row := self._claim_next()) is not None:
            reasons = self._orders.reasons([row]) or self._orders.ask(self.session, [row.id])
            if reason := reasons.get(row.id):
                self._report(Result(row, Outcome(row.id, row.lease, "paused", reason=reason)))
                continue
            return self._run(row)
        return None

    def run_if_due(self, job_id: int, *, if_paused: bool = False) -> Result | None:
        """Run this job, and report how it ended. Return None if it does not wait, is not due, or may not
        start because of a limit, or of a pause unless ``if_paused``.
        """
        self._declared_limits.write(self.session, self.runner.known_tasks + 1)
        self._read_orders()
        for first, task_path in self._still_due([job_id]):
            is_paused = self._orders.stops(first.queue_name) or task_path in self._orders.tasks
            if if_paused or not (is_paused or self._orders.ask(self.session, [first.id])):
                for row in self._claim(first).rows:
                    return self._run(row)
        return None

    def close(self) -> None:
        """Write the statistics of what has run, if anything has, and the log of unknown tasks."""
        self._accounts.write(self.session, monotonic(), is_last=True)

    # -- claim

    def _claim_next(self) -> Claimed | None:
        """Claim the next job. If the gate refuses one, its limits may let others start, so look again."""
        while True:
            self._read_orders()
            for first in self._due():
                rows, refusals, *_ = self._claim(first)
                for row in rows:
                    self._last_groups[row.queue_name, row.priority] = row.group_key or ""
                    return row
                if refusals.moved or refusals.ended or refusals.following:
                    break
            else:
                return None

    def _due(self) -> list[FirstDue]:
        """Return the jobs that may follow, and the first due one of each range, in the order to run them.

        Unlike a worker process, it looks anew before each claim, and finds what was moved into the past.
        """
        if self._orders.everything:
            return []
        paused = self._orders.queues
        queues = None if self._queues is None else [name for name in self._queues if name not in paused]
        where = (queues, [*self._except, *paused])
        found = [FirstDue(*row) for row in self.session.rows(FIRST_DUE_SQL, (*where, [], [], [], [], [], 1))]
        ranges: dict[tuple[str, int], list[FirstDue]] = {}
        for first in sorted(found, key=lambda first: (-first.priority, first.run_after, first.id)):
            if first.due_in <= 0:
                ranges.setdefault((first.queue_name, first.priority), []).append(first)
        following = [
            first for first, _ in self._still_due(self._following)
            if (first.queue_name not in where[1] if queues is None else first.queue_name in queues)
        ]  # fmt: skip
        others = [first for key, firsts in ranges.items() for first in self._in_turn(key, firsts)]
        return sorted([*following, *others], key=lambda first: -first.priority)

    def _still_due(self, jobs: list[int]) -> list[tuple[FirstDue, str]]:
        """Return the ones of these jobs that wait and are due, with their tasks."""
        rows = self.session.rows(_DUE_SQL, (jobs,)) if jobs else []
        return [(FirstDue(*row), task_path) for *row, task_path in rows]

    def _in_turn(self, key: tuple[str, int], firsts: list[FirstDue]) -> list[FirstDue]:
        """Return the first job of each group of a range, beginning after the group whose turn it was."""
        plain = [first for first in firsts if first.group_key is None]
        if len(plain) == len(firsts):
            return plain
        rows = self.session.rows(GROUPS_SQL, (*key, *key, "", _MOST_GROUPS))
        found = [FirstDue(*row) for row in rows]
        groups = [first for first in found if first.due_in <= 0 and first.group_key]
        last = self._last_groups.get(key, "")
        later = [first for first in groups if str(first.group_key) > last]
        # Jobs without a group come before the first group.
        return [*later, *plain, *(first for first in groups if first not in later)]

    def _claim(self, first: FirstDue) -> Answer:
        """Claim this job, as one that may follow the last claim: its range begins where there are no jobs."""
        self._lease += 1
        parameters: dict[str, Any] = {
            **self._orders.limit_parameters(), "queues": [first.queue_name], "priorities": [first.priority],
            "marks": [_END], "mark_ids": [0], "groups": [first.group_key], "quotas": [1], "first": [first.id],
            "limit": 1, "worker": self.worker, "lease": self._lease,
        }  # fmt: skip
        statement = claim_sql(limited=bool(self._orders.limits), grouped=first.group_key is not None)
        _, rows = self.session.run((_TAKE_RELEASED, None), (statement, parameters))
        answer = split_answer(rows)
        self._following = [job for job in self._following if job != first.id]
        self._following += answer.refusals.following
        for row in answer.rows:
            heard(self.alias, row.last_attempted_at)
        return answer

    def _read_orders(self) -> None:
        """Learn what is paused, the limits and the backoffs, and let jobs go on whose pause has ended."""
        self.session.attach()
        unpause = (UNPAUSE_SQL, (UNPAUSE_BATCH,))
        while True:
            ((freed,),), orders = self.session.run(unpause, (orders_sql(self.worker, self.worker), None))
            if freed != UNPAUSE_BATCH:
                break
        self._orders.learn(orders, monotonic())
        self.runner.outcomes.backoffs = self._orders.backoffs

    # -- run and report

    def _run(self, row: Claimed) -> Result:
        try:
            if row.on_lost is None:
                (row,) = fill_policies(self.session, [row])
            result = self.runner.perform_here(row)
        except BaseException:
            self._report(Result(row, Outcome(row.id, row.lease, "release")))
            raise
        if self.runner.progress.is_urgent:
            self.runner.progress.write(self.session)
        result = self._report(result)
        self._accounts.close(result, None)
        return result

    def _report(self, result: Result) -> Result:
        """Report an outcome. If the server refuses it, the job fails."""
        if result.reported:
            return result
        result, answer = report_or_fail(result, self._finish)
        return judged([result], answer)[0]

    def _finish(self, outcome: Outcome) -> list[Any]:
        self.session.attach()
        answer, ((released, _),) = self.session.run(finish_statement([outcome]), (_TAKE_RELEASED, None))
        self._following += [int(job) for job in (released or "").split(",") if job]
        return answer


class InlineRunner(Runner):
    """Runs one job at a time."""

    _enforces_timeouts = False

    def perform_here(self, row: Claimed) -> Result:
        """Run a claimed job, sync or async, and return its result. An error of the worker is raised."""
        ready = self._prepare(row)
        if isinstance(ready, Result):
            return ready
        ready.in_outer_transaction = connections[self.alias].in_atomic_block
        self._begin(ready)
        try:
            outcome = self._perform(ready)
        finally:
            self._end(ready)
            self.started_jobs.end(row.id)
        last = None if ready.reporting is None else ready.reporting.last
        return Result(row, outcome, monotonic() - ready.started, ready.reported, *ready.take_error(), last)

    def _perform(self, running: RunningJob) -> Outcome:
        try:
            copy_context().run(self._run_body, running)
        except BaseException as error:  # a callback raised it, or the transaction is broken
            if running.outcome is None:
                raise  # a bug of the worker
            if running.reported and not isinstance(error, BrokenTransaction):
                self._raised_late(running, error)
            elif running.outcome.kind not in {"failed", "retry"} and not running.reported:
                running.outcome = self.outcomes.unsuccessful(running, error)
        assert running.outcome is not None
        connection = connections[self.alias]
        if not connection.in_atomic_block and not connection.get_autocommit():
            unsaved = [self.alias] if has_written(connection) else []
            running.outcome = self.outcomes.tidied(running, running.outcome, unsaved)
            # What the worker writes next is not part of the transaction that the task has left open.
            connection.rollback()
            connection.set_autocommit(True)
        return running.outcome

    def _run_body(self, running: RunningJob) -> None:
        with open_transactions():
            if self.is_async(running.row.task_path):
                # The ORM work of the coroutine comes back to this thread, and so to its connections.
                async_to_sync(self.run_async)(running)
            else:
                running.outcome = self._call(running)

    def _raised_late(self, running: RunningJob, error: BaseException, *what: str) -> None:
        super()._raised_late(running, error, *what)
        running.error = error  # so that a test sees it


class BrokenTransaction(Exception):
    """A task has handled an error of the database, but left the transaction broken."""

    def __init__(self) -> None:
        super().__init__(
            "The task has handled an error of the database outside of transaction.atomic(). A worker would "
            "go on, but here the task runs in an open transaction, such as that of a TestCase, which the "
            "error breaks, so all that the task has written was undone. Put the statement that may fail in "
            "transaction.atomic(), or use a TransactionTestCase."
        )


@contextmanager
def open_transactions() -> Iterator[None]:
    """Run a task inside a transaction that belongs to other code, such as that of Django's ``TestCase``. A
    worker runs it outside of transactions: each statement and each ``atomic`` block is committed at once, and
    ``on_commit`` callbacks run. This comes as close as it can:

    The callbacks that the block has registered run at its end, in their order. They are not left to the owner
    of the transaction, which may never commit.

    A statement that fails outside of ``atomic`` breaks the whole transaction, so there is a savepoint before
    the block, which is undone in each transaction that it breaks. Raise ``BrokenTransaction`` if the block
    does so without raising.
    """
    opened = [each for each in connections.all(initialized_only=True) if each.in_atomic_block]
    made = [(each, str(each.savepoint()), len(each.run_on_commit)) for each in opened]
    was_broken = False
    try:
        yield
        for connection, _, place in made:
            while len(connection.run_on_commit) > place:  # a callback may register others
                _, callback, *_ = connection.run_on_commit.pop(place)
                callback()
    finally:
        for connection, name, place in made:
            pgconn = getattr(connection.connection, "pgconn", None)
            is_in_error = pgconn is not None and pgconn.transaction_status == TransactionStatus.INERROR
            if connection.needs_rollback or is_in_error:
                was_broken = True
                connection.needs_rollback = False
                connection.savepoint_rollback(name)
                del connection.run_on_commit[place:]
            else:
                connection.savepoint_commit(name)
    if was_broken:
        raise BrokenTransaction


# A session on Django's own connection of this thread: for workers that run jobs in their caller's process. It
# sees what the caller sees, also in an open transaction. Each call of ``run`` is one savepoint there, so that
# an error leaves the transaction usable.

_ATTACH_SQL = "SET CONSTRAINTS pgqueue_attach IMMEDIATE; SET CONSTRAINTS pgqueue_attach DEFERRED"


class _UtcText(TimestamptzLoader):
    """Gives times as the text that other sessions get, whichever time zone Django has set."""

    def load(self, data: Buffer) -> Any:
        return super().load(data).astimezone(UTC).isoformat(" ")


class BorrowedSession(Session):
    """Raises errors of psycopg, as other sessions do, and not the ones that Django makes of them."""

    def __init__(self, alias: str) -> None:
        self.pooled = True  # nothing is prepared or set for it
        self.holds_lock = False
        self._alias = alias

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
        """In an open transaction, attach jobs to the jobs and batches that they wait for, as its commit would
        do (``triggers.sql``). If these end in this transaction, the commit would be too late.
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
