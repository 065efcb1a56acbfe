"""The task that reads one file and makes it searchable."""

from __future__ import annotations

import hashlib
import time
from pathlib import Path
from typing import TypedDict

from django.db import OperationalError
from django.db.models import QuerySet
from django.db.models.functions import Now

from django_pgqueue import task
from django_pgqueue.models import Job

from .extraction import extract, is_python
from .failures import TooLarge, Unindexable
from .models import Document
from .reading import Contents, decode, read
from .vectors import document_vector

PROGRAM_LIMIT_EXCEEDED = "54000"
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
    contents = None
    try:
        contents = read(Path(document.path))
        digest = hashlib.sha256(contents.data).hexdigest()
        if digest == document.digest:
            _write(document, contents, state=Document.State.INDEXED, cause="", reason="")
            return "same text"
        _write_text(document, contents, digest)
    except Unindexable as failure:
        _write_failure(document, contents, failure)
        raise
    return "indexed"


def _write_text(document: Document, contents: Contents, digest: str) -> None:
    found = extract(document.path, decode(contents.data, python=is_python(document.path)))
    try:
        _write(
            document,
            contents,
            digest=digest,
            state=Document.State.INDEXED,
            cause="",
            reason="",
            title=found.title,
            text=found.text,
            vector=document_vector(found.title, found.headings, document.path, found.text),
            indexed_at=Now(),
        )
    except OperationalError as error:
        if getattr(error.__cause__, "sqlstate", None) != PROGRAM_LIMIT_EXCEEDED:
            raise
        raise TooLarge(f"{document.path} has too many different words: {error}") from error


def _write_failure(document: Document, contents: Contents | None, failure: Unindexable) -> None:
    """Store the reason in the document, and delete the text of an older version so that searches miss it."""
    _write(
        document,
        contents,
        digest="",
        state=Document.State.FAILED,
        cause=failure.cause,
        reason=str(failure),
        title="",
        text="",
        vector=None,
        indexed_at=None,
    )


def _write(document: Document, contents: Contents | None, **changes: object) -> None:
    """Update the row, if it still exists, with the version of the file that was read."""
    if contents is not None:
        changes |= {"size": contents.size, "modified": contents.modified}
    Document.objects.filter(pk=document.pk).update(**changes)
