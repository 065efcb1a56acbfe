"""Immediate mode: a job runs in the process that enqueues it, at the commit, or at once if there is none.

Its row is written as always, and the job runs with the code of a worker (``worker/inline.py``). So all
options count, and the row shows how it ended. A job that is not due, or that its limits do not let start,
stays in the table; ``run_jobs()`` runs it later. The last part says what counts as the commit.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, TypeVar

from django.db import DatabaseError, Error, connections, transaction

from ..jobs.batches import BatchRows
from ..jobs.enqueue import write, write_all
from ..jobs.job_list import JobList
from ..models import Job
from ..worker.inline import BorrowedSession, InlineWorker
from .databases import check_is_test
from .running import raise_failure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from django.db.backends.base.base import BaseDatabaseWrapper

    from ..jobs.call import Call

T = TypeVar("T")
_RELEASED_SQL = """
    SELECT id FROM pgqueue_job_live
    WHERE parents IS NOT NULL AND status = 'pending' AND run_after <= clock_timestamp() ORDER BY id
"""


class Immediate:
    """Writes calls, and runs their jobs (`lifecycle.calls.Keeper`)."""

    def __init__(self, *, at_once: bool = False, raise_failures: bool = True) -> None:
        self._at_once = at_once
        self._raise_failures = raise_failures

    @property
    def batches(self) -> ImmediateBatches:
        """Where their batches are."""
        return ImmediateBatches(self)

    def one(self, call: Call) -> Job:
        """Write a call and run its job. Return the job; if it has run already, as it is now."""
        check_is_test("Immediate mode", call.alias)
        job = write(call)
        if job.enqueue_outcome == "created":
            self._run(call.alias, [job.pk])
            now = Job.objects.using(call.alias).filter(pk=job.pk).first()
            if now is not None and now.status != job.status:
                now.enqueue_outcome = job.enqueue_outcome
                return now
        return job

    def many(self, calls: Iterable[Call]) -> JobList:
        """Write calls, and then run their jobs in this order."""
        kept = list(calls)
        alias = kept[0].alias
        check_is_test("Immediate mode", alias)
        done = write_all(iter(kept))
        self._run(alias, [job for job, outcome in done if outcome == "created"])
        return JobList(alias, done)

    def _run(self, alias: str, jobs: list[int]) -> None:
        """Run jobs, and then those that have waited for them."""

        def run() -> None:
            worker = InlineWorker(alias)
            queue, known = deque(jobs), {*jobs, *released(alias)}
            try:
                while queue:
                    result = worker.run_if_due(queue.popleft())
                    if result is not None and self._raise_failures:
                        raise_failure(result)
                    queue += (found := [job for job in released(alias) if job not in known])
                    known |= set(found)
            finally:
                worker.close()

        if self._at_once:
            run()
        else:
            at_commit(alias, run)

    def run_released(self, alias: str, change: Callable[[], T]) -> T:
        """Change a batch, and run the jobs that have waited for that."""
        before = set(released(alias))
        done = change()
        self._run(alias, [job for job in released(alias) if job not in before])
        return done


class ImmediateBatches(BatchRows):
    """The batches, as rows. The end of one lets jobs run."""

    def __init__(self, keeper: Immediate) -> None:
        self._keeper = keeper

    def close(self, alias: str, batch: int) -> None:
        """Let it end when none of its jobs is live."""
        self._keeper.run_released(alias, lambda: BatchRows.close(self, alias, batch))

    def cancel(self, alias: str, batch: int) -> int:
        """Cancel its jobs, and return how many."""
        return self._keeper.run_released(alias, lambda: BatchRows.cancel(self, alias, batch))


def released(alias: str) -> list[int]:
    """Return the due jobs that have waited for others, and have not begun."""
    session = BorrowedSession(alias)
    session.attach()
    return [job for (job,) in session.rows(_RELEASED_SQL)]


# ----------------------------------------------------------------------------
# What is the commit of the code under test: in a ``TestCase``, the end of its outermost block.
#
# Django has no hook for that end. But it releases the savepoint of a block that ends well, with a method of
# the connection, so that method is replaced while calls wait for it.
#
# - A block of ``atomic(savepoint=False)`` has no savepoint. Django itself enters such blocks, for example
#   when it deletes rows or changes a many-to-many relation, and receivers of its signals enqueue jobs in
#   them. So the outermost block gets a name in place of a savepoint, which the database does not know.
# - If the release raises a ``DatabaseError``, Django rolls back to the savepoint. But an error of a call
#   comes after the release, and a rollback to a savepoint that is gone would break the transaction of the
#   test.

_NO_SAVEPOINT = "pgqueue_no_savepoint"
_METHODS = ("savepoint_commit", "savepoint_rollback")


def at_commit(alias: str, call: Callable[[], None]) -> None:
    """Make a call at the commit of the code under test; at once if it is in no transaction of its own."""
    connection = connections[alias]
    blocks = connection.atomic_blocks
    if blocks and not blocks[0]._from_testcase:  # type: ignore[attr-defined]
        transaction.on_commit(call, using=alias)
    elif depth := _depth(connection):
        _watch(connection, depth)
        # Django drops the call if a block around it is rolled back.
        transaction.on_commit(_Call(call), using=alias)
    else:
        call()


def _depth(connection: BaseDatabaseWrapper) -> int:
    """Return how many ``atomic`` blocks there are within those of the test."""
    blocks: list[Any] = connection.atomic_blocks
    return sum(not block._from_testcase for block in blocks)


def _watch(connection: BaseDatabaseWrapper, depth: int) -> None:
    """Wait for the release after which only the blocks of the test are left."""
    savepoints: list[Any] = connection.savepoint_ids
    if savepoints[-depth] is None:
        savepoints[-depth] = _NO_SAVEPOINT
    if _METHODS[0] in connection.__dict__:
        return
    release, roll_back = connection.savepoint_commit, connection.savepoint_rollback

    def release_and_call(sid: str) -> None:
        if sid != _NO_SAVEPOINT:
            release(sid)
        if not _depth(connection):
            _replace(connection)
            _call_all(connection)

    def roll_back_if_there(sid: str) -> None:
        if sid == _NO_SAVEPOINT:  # Django then marks the transaction, as it does for a block without one
            raise Error("This block has no savepoint.")
        roll_back(sid)

    _replace(connection, release_and_call, roll_back_if_there)


def _replace(connection: BaseDatabaseWrapper, *methods: Callable[[str], None]) -> None:
    """Replace both methods of the connection, or restore them."""
    for name in _METHODS:
        connection.__dict__.pop(name, None)
    connection.__dict__.update(zip(_METHODS, methods, strict=False))


class _Call:
    def __init__(self, call: Callable[[], None]) -> None:
        self.call = call

    def __call__(self) -> None:
        self.call()


def _call_all(connection: BaseDatabaseWrapper) -> None:
    registered: list[Any] = connection.run_on_commit
    ours = [each for each in registered if isinstance(each[1], _Call)]
    connection.run_on_commit = [each for each in registered if each not in ours]
    try:
        for _, call, _ in ours:
            call()
    except DatabaseError:
        # Django now calls both methods once: it rolls back, and releases the savepoint.
        _replace(connection, lambda _: _replace(connection), lambda _: None)
        raise
