"""A run of the indexer is a batch: its jobs are counted together. When all are over, one more sums it up."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from django_pgqueue import Batch, JobList, enqueue
from django_pgqueue.models import Job

from .large import LARGE
from .models import Run
from .tasks import index_document, summarize_run

# Small files come first, so that most of the index is available early. Each pair is (maximum size, priority).
PRIORITIES = ((4_000, 40), (16_000, 30), (64_000, 20), (LARGE, 10))


@dataclass(frozen=True, slots=True)
class NewRun:
    """A run to which jobs are added. `summary` is the job that sums it up."""

    run: Run
    batch: Batch
    summary: Job

    def add(self, documents: Iterable[tuple[int, int]]) -> JobList:
        """Enqueue a job for each (id, size), and return the jobs. Smaller files get a higher priority."""
        tasks = {priority: index_document.using(priority=priority) for _, priority in PRIORITIES}
        return self.batch.add(
            next((tasks[priority] for below, priority in PRIORITIES if size < below), index_document).bind(pk)
            for pk, size in documents
        )


@contextmanager
def new_run(files: int) -> Iterator[NewRun]:
    """Open a run for so many files. The block is a transaction, in which their jobs are added."""
    with Batch("index") as batch:
        run = Run.objects.create(batch_id=batch.id, files=files)
        # Some files cannot be indexed, so their jobs fail. The run is over nevertheless.
        summary = enqueue(summarize_run.using(after=batch, if_failed="run"), run.pk)
        yield NewRun(run, batch, summary)
