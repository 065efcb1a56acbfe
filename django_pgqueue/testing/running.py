"""Run the jobs of a test here, with the claim, the finish and the retries of a worker: ``run_jobs``, and
immediate mode.

In immediate mode, a job runs in the process that enqueues it, at the commit, or at once if there is none. Its
row is written as always, so all options count, and the row shows how it ended. A job that is not due, or that
its limits do not let start, stays in the table; ``run_jobs()`` runs it later. The last part says what counts
as the commit.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from typing import Any, NamedTuple
from unittest.mock import patch

from django.db import DatabaseError, Error, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from .. import conf
from ..compat import for_async
from ..exceptions import RetryLater
from ..jobs.batches import BatchAction, BatchRows
from ..jobs.enqueue import JobList, write, write_all
from ..maintenance.rounds import sweep, tell_retention
from ..maintenance.schedules import synchronize
from ..models import Job
from ..postgres import sql_of
from ..schedules.fire import fire_due
from ..tasks.call import Call
from ..tasks.progress import Progress
from ..tasks.retry import leaves
from ..worker.executor.outcomes import Result
from ..worker.executor.progress import ReportedProgress
from ..worker.inline import BorrowedSession, InlineWorker
from .databases import alias_of, check_is_test

MOST_RUNS = 1_000
"""After so many runs without a limit, ``run_jobs`` gives up: jobs probably enqueue each other forever."""
_MOST_RECOVERED = 1_000_000
_LOST_SQL = sql_of(__file__, "lost_workers")
_FORGET_SQL = sql_of(__file__, "forget")
_RELEASED_SQL = sql_of(__file__, "released")
_RECOVER_SQL = (
    "SELECT * FROM _pgqueue_recover(%s::bigint[], NULL, NULL, false, 'its worker was lost', %s, %s, %s)"
)


class AttemptResult(NamedTuple):
    """One run of a job, as `run_jobs` returns it."""

    id: int
    """The id of the job."""
    task_path: str
    """The path of its task."""
    outcome: str
    """How it ended: "done", "retry", "failed", "cancelled", "snooze", or "unknown" if there is no such task.
    """
    attempt: int
    """Which attempt it was. This counts from 1."""
    result: Any
    """The return value of the task."""
    error: BaseException | None
    """The exception because of which the attempt failed."""
    using: str
    """The alias of the database."""
    progress: Progress | None = None
    """The last report of the job by ``current_job().set_progress()``."""

    @property
    def job(self) -> Job:
        """The job as it is in the database now."""
        return Job.objects.using(self.using).get(pk=self.id)


def run_jobs(
    *,
    queues: Iterable[str] | str | None = None,
    limit: int | None = None,
    raise_failures: bool = True,
    schedules: bool = False,
    using: str | None = None,
) -> list[AttemptResult]:
    """Run the jobs that are due, one after another, in this process and on the connection of the test.

    This also runs jobs that these jobs enqueue, and retries that are due at once. It works inside and outside
    of transactions. It returns the results of the attempts, in order, when no job is due.

    ``queues``: only these queues (a name or several); None: all. ``limit``: stop after so many runs; without
    it, raise ``RuntimeError`` after 1,000. ``schedules``: first write the schedules that the code declares,
    and fire the due ones. ``using``: the alias of the database.

    If an attempt fails, raise the exception of its task, after its outcome was stored; jobs behind it do not
    run. A task that raises ``RetryLater`` has not failed while it has attempts left. With
    ``raise_failures=False``, go on, and return the exceptions.
    """
    alias = alias_of(using)
    check_is_test("run_jobs()", alias)
    if schedules:
        synchronize(alias)
        fire_due(BorrowedSession(alias).rows, {})
    names = [queues] if isinstance(queues, str) else list(queues or ())
    if queues is not None and not names:
        raise ValueError("run_jobs(queues=[]) names no queue. Use None for all queues.")
    ran: list[AttemptResult] = []
    with closing(InlineWorker(alias, queues=names)) as worker:
        while limit is None or len(ran) < limit:
            if (result := worker.run_next()) is None:
                break
            row, outcome = result.row, result.outcome
            attempt = row.attempts - row.forgiven_attempts
            value = None if outcome.result is None else json.loads(outcome.result)
            ran.append(
                AttemptResult(
                    row.id, row.task_path, outcome.kind, attempt, value, result.error, alias, result.progress
                )
            )
            if raise_failures:
                raise_failure(result)
            if limit is None and len(ran) >= MOST_RUNS:
                often = Counter(each.task_path for each in ran).most_common(3)
                paths = ", ".join(f"{path} {count} times" for path, count in often)
                raise RuntimeError(
                    f"run_jobs() has run {len(ran):,} jobs, and more may be due: {paths}. If jobs enqueue "
                    "each other without an end, or retry without a wait, correct that. If there are so many "
                    "jobs, say how many to run: run_jobs(limit=10_000)."
                )
    return ran


arun_jobs = for_async(run_jobs)


def run_maintenance(*, using: str | None = None) -> None:
    """Do the maintenance of a worker: give back the jobs of dead workers, end unique keys and pauses whose
    time has passed, and delete jobs whose retention has ended.
    """
    alias = alias_of(using)
    check_is_test("run_maintenance()", alias)
    session, settings = BorrowedSession(alias), conf.current()
    tell_retention(session)
    if lost := session.value(_LOST_SQL, (settings.lease,)):
        session.run(
            (_RECOVER_SQL, (lost, settings.crash_limit, _MOST_RECOVERED, settings.keep_errors)),
            ("SELECT _pgqueue_forget_workers(%s::bigint[])", (lost,)),
        )
    session.run((_FORGET_SQL, None))
    while sweep(session):
        pass


def raise_failure(result: Result) -> None:
    """Raise the exception of a failed attempt, unless its task has asked for the retry."""
    if (error := result.error) is None:
        return
    if result.outcome.kind != "retry" or not all(isinstance(each, RetryLater) for each in leaves(error)):
        raise error


@contextmanager
def reported_progress() -> Iterator[list[Progress]]:
    """Collect the reports by ``current_job().set_progress()`` and ``track()`` in the block, in order.

    The jobs may run in ``call_task()``, ``run_jobs()``, immediate mode, ``fake_job()``, or on a thread. Each
    item has ``done``, ``total`` and ``note``, and is equal to a tuple of these.
    """
    reported: list[Progress] = []
    report = ReportedProgress.report

    def note_and_report(job: ReportedProgress, done: Any, total: Any = None, note: Any = "") -> None:
        report(job, done, total, note)
        reported.append(job.last or Progress(0))

    with patch.object(ReportedProgress, "report", note_and_report):
        yield reported


class Immediate(BatchRows):
    """Immediate mode: writes calls and batches, and runs the jobs that this lets run."""

    def __init__(self, *, at_once: bool = False, raise_failures: bool = True) -> None:
        self._at_once = at_once
        self._raise_failures = raise_failures

    def one(self, call: Call) -> Job:
        """Write a call and run its job. Return the job; if it has run already, as it is now."""
        check_is_test("Immediate mode", call.options.alias)
        job = write(call)
        if job.enqueue_outcome == "created":
            self._run(call.options.alias, [job.pk])
            now = Job.objects.using(call.options.alias).filter(pk=job.pk).first()
            if now is not None and now.status != job.status:
                now.enqueue_outcome = job.enqueue_outcome
                return now
        return job

    def many(self, calls: Iterable[Call]) -> JobList:
        """Write calls, and then run their jobs in this order."""
        kept = list(calls)
        alias = kept[0].options.alias
        check_is_test("Immediate mode", alias)
        done = write_all(iter(kept))
        self._run(alias, [job for job, outcome in done if outcome == "created"])
        return JobList(alias, done)

    def _run(self, alias: str, jobs: list[int]) -> None:
        """Run jobs, and then the jobs that have waited for them."""

        def run() -> None:
            queue, known = deque(jobs), {*jobs, *released(alias)}
            with closing(InlineWorker(alias)) as worker:
                while queue:
                    result = worker.run_if_due(queue.popleft())
                    if result is not None and self._raise_failures:
                        raise_failure(result)
                    queue += (found := [job for job in released(alias) if job not in known])
                    known |= set(found)

        if self._at_once:
            run()
        else:
            at_commit(alias, run)

    def change(self, alias: str, action: BatchAction, batch: int | str) -> int:
        """Change a batch, and run the jobs that have waited for its end."""
        may_end = action in ("close", "cancel")
        before = set(released(alias)) if may_end else set()
        done = super().change(alias, action, batch)
        if may_end:
            self._run(alias, [job for job in released(alias) if job not in before])
        return done


def released(alias: str) -> list[int]:
    """Return the due jobs that have waited for others, and have not begun."""
    session = BorrowedSession(alias)
    session.attach()
    return [job for (job,) in session.rows(_RELEASED_SQL)]


# What is the commit of the code under test: in a ``TestCase``, the end of its outermost block. Django has no
# hook for that end. But it releases the savepoint of a block that ends well, with a method of the connection,
# so that method is replaced while calls wait for it.
#
# - A block of ``atomic(savepoint=False)`` has no savepoint. Django itself enters such blocks, for example
#   when it deletes rows or changes a many-to-many relation, and receivers of its signals enqueue jobs in
#   them, so the outermost block gets a name in place of a savepoint, which the database does not know.
# - If the release raises a ``DatabaseError``, Django rolls back to the savepoint. But an error of a call
#   comes after the release, and a rollback to a savepoint that is gone would break the transaction of the
#   test.

_NO_SAVEPOINT = "pgqueue_no_savepoint"


class _AtCommit(partial[None]):
    """A call that waits for the commit of the code under test."""


def at_commit(alias: str, call: Callable[[], None]) -> None:
    """Make a call at the commit of the code under test; at once if it is in no transaction of its own."""
    connection = connections[alias]
    depth, blocks = _depth(connection), len(connection.atomic_blocks)
    if not depth:
        call()
    elif depth == blocks:
        transaction.on_commit(call, using=alias)
    else:
        _watch(connection, depth)
        # Django drops the call if a block around it is rolled back.
        transaction.on_commit(_AtCommit(call), using=alias)


def _depth(connection: BaseDatabaseWrapper) -> int:
    """Return how many ``atomic`` blocks there are within the blocks of the test."""
    blocks: list[Any] = connection.atomic_blocks
    return sum(not block._from_testcase for block in blocks)


def _watch(connection: BaseDatabaseWrapper, depth: int) -> None:
    """Wait for the release after which only the blocks of the test are left, and make the calls then."""
    savepoints: list[Any] = connection.savepoint_ids
    if savepoints[-depth] is None:
        savepoints[-depth] = _NO_SAVEPOINT
    if "savepoint_commit" in connection.__dict__:
        return
    release, roll_back = connection.savepoint_commit, connection.savepoint_rollback

    def release_and_call(sid: str) -> None:
        if sid != _NO_SAVEPOINT:
            release(sid)
        if _depth(connection):
            return
        watched.stop()
        registered: list[Any] = connection.run_on_commit
        ours = [each for each in registered if isinstance(each[1], _AtCommit)]
        connection.run_on_commit = [each for each in registered if each not in ours]
        try:
            for _, call, _ in ours:
                call()
        except DatabaseError:
            # Django now calls both methods once: it rolls back, and releases the savepoint.
            unchanged: Any = patch.multiple(
                connection, savepoint_commit=lambda _: unchanged.stop(), savepoint_rollback=lambda _: None
            )
            unchanged.start()
            raise

    def roll_back_if_there(sid: str) -> None:
        if sid == _NO_SAVEPOINT:  # Django then marks the transaction, as it does for a block without one
            raise Error("This block has no savepoint.")
        roll_back(sid)

    watched = patch.multiple(
        connection, savepoint_commit=release_and_call, savepoint_rollback=roll_back_if_there
    )
    watched.start()
