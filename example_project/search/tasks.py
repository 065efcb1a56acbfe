"""The task that reads one file and makes it searchable, and those that sum up a run and export results."""

from __future__ import annotations

import time
from typing import TypedDict

from django.db.models import Count, QuerySet

from django_pgqueue import task
from django_pgqueue.models import Job

from .completeness import troubles
from .exports import as_csv
from .failures import Unindexable
from .large import LARGE, index_large
from .models import Document, Export, Run
from .small import index_small

LIVE = (Job.Status.PENDING, Job.Status.RETRY, Job.Status.RUNNING)


class Outcome(TypedDict):
    """The result of a job: what it did, and how many seconds it took by the worker's clock."""

    outcome: str
    seconds: float


@task(queue_name="index", fail_on=Unindexable, max_attempts=5, timeout=120)
def index_document(document_id: int) -> Outcome:
    """Index the file of a document. It may run twice, because what it writes depends only on the file.

    If the file is `Unindexable`, the job fails at once, and the reason is stored in the document. Any other
    exception is considered temporary, and the job is retried.
    """
    began = time.perf_counter()
    outcome = _index(document_id)
    return {"outcome": outcome, "seconds": round(time.perf_counter() - began, 6)}


class RunSummary(TypedDict):
    """What has become of the files of a run, and what is wrong with the index."""

    files: int
    indexed: int
    failed: dict[str, int]
    troubles: list[str]


@task(queue_name="index", priority=50)
def summarize_run(run_id: int) -> RunSummary:
    """Sum up a run whose jobs have finished. If it runs twice, it writes the same."""
    run = Run.objects.get(pk=run_id)
    states = run.documents.order_by().values_list("state", "cause").annotate(Count("pk"))
    counts = {(state, cause): count for state, cause, count in states}
    summary: RunSummary = {
        "files": run.files,
        "indexed": counts.get((Document.State.INDEXED, ""), 0),
        "failed": {cause: counts[state, cause] for state, cause in counts if state == Document.State.FAILED},
        "troubles": troubles(run),
    }
    Run.objects.filter(pk=run_id).update(summary=summary)
    return summary


@task(payload=Export, queue_name="index", priority=60, max_attempts=5)
def write_export(export: Export) -> None:
    """Write all results of a search into the row of the export. If it runs twice, it writes the same."""
    documents, content = as_csv(export.query)
    Export.objects.filter(pk=export.pk).update(documents=documents, content=content)


def live_jobs() -> QuerySet[Job]:
    """Return the jobs of this task that are not over."""
    return Job.objects.filter(
        task_path=index_document.module_path, status__in=["pending", "retry", "running"]
    )


def _index(document_id: int) -> str:
    document = Document.objects.defer("text", "vector").filter(pk=document_id).first()
    if document is None:
        return "removed"  # the document was removed from the index after the job was enqueued
    return index_large(document) if document.size >= LARGE else index_small(document)
