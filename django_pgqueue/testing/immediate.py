"""Immediate mode: a job runs in the process that enqueues it, at the commit, or at once if there is none.

Its row is written as always, and the job runs with the code of a worker (``worker/inline.py``). So all
options count, and the row shows how it ended. A job that is not due, or that its limits do not let start,
stays in the table; ``run_jobs()`` runs it later.

The transaction of a ``TestCase`` is never committed, and so it does not count: the commit is the end of the
outermost ``atomic`` block within it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import connections, transaction

from ..lifecycle.enqueue import write, write_all
from ..models import Job
from ..worker.inline import InlineWorker
from .databases import check_is_test
from .running import raise_failure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from django.db.backends.base.base import BaseDatabaseWrapper

    from ..lifecycle.calls import Call
    from ..unique import EnqueueOutcome

__all__ = ["Immediate", "at_commit"]


class Immediate:
    """Writes calls, and runs their jobs (`lifecycle.calls.Keeper`)."""

    def __init__(self, *, at_once: bool = False, raise_failures: bool = True) -> None:
        self._at_once = at_once
        self._raise_failures = raise_failures

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

    def many(self, calls: Iterable[Call]) -> list[tuple[int, EnqueueOutcome]]:
        """Write calls, and then run their jobs in this order."""
        kept = list(calls)
        alias = kept[0].alias
        check_is_test("Immediate mode", alias)
        done = write_all(iter(kept))
        self._run(alias, [job for job, outcome in done if outcome == "created"])
        return done

    def _run(self, alias: str, jobs: list[int]) -> None:
        def run() -> None:
            worker = InlineWorker(alias)
            try:
                for job in jobs:
                    result = worker.run_if_due(job)
                    if result is not None and self._raise_failures:
                        raise_failure(result)
            finally:
                worker.close()

        if self._at_once:
            run()
        else:
            at_commit(alias, run)


def at_commit(alias: str, call: Callable[[], None]) -> None:
    """Make a call at the commit of the code under test; at once if it is in no transaction of its own."""
    connection = connections[alias]
    blocks = connection.atomic_blocks
    if blocks and not blocks[0]._from_testcase:  # type: ignore[attr-defined]
        transaction.on_commit(call, using=alias)
    elif _depth(connection):
        _at_end_of_block(connection, call)
    else:
        call()


def _depth(connection: BaseDatabaseWrapper) -> int:
    """Return how many ``atomic`` blocks there are within those of the test."""
    blocks: list[Any] = connection.atomic_blocks
    return sum(not block._from_testcase for block in blocks)


def _at_end_of_block(connection: BaseDatabaseWrapper, call: Callable[[], None]) -> None:
    """Make a call when the outermost block within the test's has ended well.

    Django has no hook for that, but it releases the savepoint of each block. So this waits for the release
    after which only the blocks of the test are left. Until then, the call is one of those for the commit,
    which Django drops if a block around it is rolled back.
    """
    transaction.on_commit(_Call(call), using=connection.alias)
    if "savepoint_commit" in connection.__dict__:
        return
    release = connection.savepoint_commit

    def release_and_call(sid: str) -> None:
        release(sid)
        if not _depth(connection):
            connection.__dict__.pop("savepoint_commit", None)
            _call_all(connection)

    connection.__dict__["savepoint_commit"] = release_and_call


class _Call:
    def __init__(self, call: Callable[[], None]) -> None:
        self.call = call

    def __call__(self) -> None:
        self.call()


def _call_all(connection: BaseDatabaseWrapper) -> None:
    registered: list[Any] = connection.run_on_commit
    ours = [each for each in registered if isinstance(each[1], _Call)]
    connection.run_on_commit = [each for each in registered if each not in ours]
    for _, call, _ in ours:
        call()
