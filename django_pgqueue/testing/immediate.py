"""Immediate mode: a job runs in the process that enqueues it, at the commit, or at once if there is none.

Its row is written as always, and the job runs with the code of a worker (``worker/inline.py``). So all
options count, and the row shows how it ended. A job that is not due, or that its limits do not let start,
stays in the table; ``run_jobs()`` runs it later. What counts as the commit is in ``commits``.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, TypeVar

from ..lifecycle.batch_rows import BatchRows
from ..lifecycle.enqueue import write, write_all
from ..models import Job
from ..worker.borrowed_session import BorrowedSession
from ..worker.inline import InlineWorker
from .commits import at_commit
from .databases import check_is_test
from .running import raise_failure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ..lifecycle.calls import Call
    from ..unique import EnqueueOutcome

__all__ = ["Immediate"]

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

    def many(self, calls: Iterable[Call]) -> list[tuple[int, EnqueueOutcome]]:
        """Write calls, and then run their jobs in this order."""
        kept = list(calls)
        alias = kept[0].alias
        check_is_test("Immediate mode", alias)
        done = write_all(iter(kept))
        self._run(alias, [job for job, outcome in done if outcome == "created"])
        return done

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
