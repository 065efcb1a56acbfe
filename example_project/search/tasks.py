"""The task that reads one file and makes it searchable."""

from __future__ import annotations

import time
from typing import TypedDict

from django.db.models import QuerySet

from django_pgqueue import task
from django_pgqueue.models import Job

from .failures import Unindexable
from .large import LARGE, index_large
from .models import Document
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
