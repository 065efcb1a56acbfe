"""The jobs of dummy mode, which exist only in the memory of this process."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import count
from typing import TYPE_CHECKING

from ..lifecycle.made_jobs import new_job
from ..models.batch import BatchCounts, JobBatch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..lifecycle.calls import Call
    from ..models import Job
    from ..unique import EnqueueOutcome

__all__ = ["BATCHES", "JOBS", "Memory", "clear"]

JOBS: list[Job] = []
"""What was enqueued in dummy mode, the oldest first."""
BATCHES: dict[int, JobBatch] = {}
"""The batches that were opened in dummy mode."""
_numbers = count(1)


def clear() -> None:
    """Forget the jobs."""
    JOBS.clear()
    BATCHES.clear()


class MemoryBatches:
    """Keeps batches (`lifecycle.batch_rows.BatchStore`). None of them is ever over, as no job runs."""

    in_memory = True

    def open(self, alias: str, name: str) -> int:
        """Keep a batch."""
        batch = JobBatch(id=next(_numbers), name=name, is_open=True, created_at=datetime.now(UTC), outcome="")
        BATCHES[batch.pk] = batch
        return int(batch.pk)

    def close(self, alias: str, batch: int) -> None:
        """Remember it."""
        self.row(alias, batch).is_open = False

    def cancel(self, alias: str, batch: int) -> int:
        """Cancel the jobs in memory that belong to it."""
        self.close(alias, batch)
        waiting = [job for job in JOBS if job.batch_id == batch and job.status != job.Status.CANCELLED]
        for job in waiting:
            job.status = job.Status.CANCELLED
        return len(waiting)

    def retry(self, alias: str, batch: int) -> int:
        """Do nothing: no job has failed."""
        self.row(alias, batch)
        return 0

    def row(self, alias: str, batch: int) -> JobBatch:
        """Return it. Raise ``JobBatch.DoesNotExist``."""
        if batch not in BATCHES:
            raise JobBatch.DoesNotExist(f"No batch {batch} was opened in dummy mode.")
        return BATCHES[batch]

    def counts(self, alias: str, batch: int) -> BatchCounts:
        """Count the jobs in memory that belong to it."""
        statuses = [job.status for job in JOBS if job.batch_id == batch]
        return BatchCounts(len(statuses), 0, 0, statuses.count("cancelled"))


class Memory:
    """Takes calls, and keeps their jobs (`lifecycle.calls.Keeper`)."""

    batches = MemoryBatches()

    def one(self, call: Call) -> Job:
        """Keep the job of a call. It is not saved, and nothing else knows its id."""
        options = call.options
        now = datetime.now(UTC)
        run_after = options.run_after or now + timedelta(seconds=options.delay or 0.0)
        expires_at = None
        if options.expires_after is not None:
            expires_at = max(now, run_after) + timedelta(seconds=options.expires_after)
        job = new_job(call, next(_numbers), max(now, run_after), expires_at, now)
        if call.payload is not None:
            call.payload.job = job  # not saved either; the job leads to it, too
        JOBS.append(job)
        return job

    def many(self, calls: Iterable[Call]) -> list[tuple[int, EnqueueOutcome]]:
        """Keep the jobs of calls, all or none."""
        return [(self.one(call).pk, "created") for call in list(calls)]
