"""The progress of the indexing: of the whole index, of the last run, and of the large documents in it."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import Count

from django_pgqueue import Batch
from django_pgqueue.models import Job, JobBatch
from django_pgqueue.tasks.progress import Progress as Part

from .models import Document, Run
from .tasks import live_jobs


@dataclass(frozen=True, slots=True)
class RunProgress:
    """How many jobs of a run are over, of how many. The batch of the run counts them."""

    total: int
    over: int
    failed: int

    def __str__(self) -> str:
        failed = f", {self.failed} failed" if self.failed else ""
        return f"{self.over} of {self.total} jobs have finished{failed}"


@dataclass(frozen=True, slots=True)
class Progress:
    """The number of documents in each state, the number of jobs that are not over, and details."""

    indexed: int
    failed: int
    waiting: int
    jobs: int
    run: RunProgress | None
    large: list[Part]

    @property
    def total(self) -> int:
        """The number of all documents."""
        return self.indexed + self.failed + self.waiting


def progress() -> Progress:
    """Return the current progress of the index."""
    states = dict(Document.objects.order_by().values_list("state").annotate(Count("pk")))
    return Progress(
        indexed=states.get(Document.State.INDEXED, 0),
        failed=states.get(Document.State.FAILED, 0),
        waiting=states.get(Document.State.WAITING, 0),
        jobs=live_jobs().count(),
        run=last_run(),
        large=large_documents(),
    )


def last_run() -> RunProgress | None:
    """Return the progress of the last run, or None if there was none, or if its batch is no longer kept."""
    run = Run.objects.first()
    return None if run is None else progress_of(run)


def progress_of(run: Run) -> RunProgress | None:
    """Return the progress of a run, or None if its batch is no longer kept."""
    try:
        counts = Batch.get(run.batch_id).counts()
    except JobBatch.DoesNotExist:
        return None
    return RunProgress(total=counts.added, over=counts.added - counts.live, failed=counts.failed)


def large_documents() -> list[Part]:
    """Return how far the jobs are that index a document in parts. The notes name the documents."""
    jobs = live_jobs().filter(status=Job.Status.RUNNING, live_progress__isnull=False)
    found = [job.progress for job in jobs.select_related("live_progress")]
    return [progress for progress in found if progress is not None]
