"""The models. Each known file has a document with what a search needs. A large one is prepared in a draft.

An export is a typed payload: its row is a job.
"""

from __future__ import annotations

from pathlib import PurePath

from django.contrib.postgres.indexes import GinIndex
from django.contrib.postgres.search import SearchVectorField
from django.db import models

from django_pgqueue import JobPayload


class Run(models.Model):
    """A run of the indexer. Its jobs are the batch with the id `batch_id`. The last one writes `summary`."""

    batch_id = models.BigIntegerField(unique=True)
    started_at = models.DateTimeField(auto_now_add=True)
    files = models.IntegerField()
    summary = models.JSONField(null=True)

    class Meta:
        ordering = ["-pk"]

    def __str__(self) -> str:
        return f"run {self.pk}"


class Document(models.Model):
    """A text file. `size` (bytes) and `modified` (nanoseconds) describe the version that was last read."""

    class State(models.TextChoices):
        WAITING = "waiting", "waiting"
        INDEXED = "indexed", "indexed"
        FAILED = "failed", "failed"

    class Cause(models.TextChoices):
        """Why a file failed. The values are the `cause` attributes of the classes in failures.py."""

        GONE = "gone", "gone"
        UNREADABLE = "unreadable", "unreadable"
        TOO_LARGE = "too_large", "too large"
        NOT_TEXT = "not_text", "not text"

    path = models.TextField(unique=True)
    size = models.BigIntegerField()
    modified = models.BigIntegerField()
    digest = models.CharField(max_length=64, blank=True, editable=False)
    state = models.CharField(max_length=10, choices=State, default=State.WAITING)
    cause = models.CharField(max_length=10, choices=Cause, blank=True)
    reason = models.TextField(blank=True)
    title = models.TextField(blank=True)
    text = models.TextField(blank=True)
    vector = SearchVectorField(null=True, editable=False)
    indexed_at = models.DateTimeField(null=True)
    run = models.ForeignKey(Run, models.SET_NULL, null=True, related_name="documents")

    class Meta:
        ordering = ["path"]
        indexes = [
            GinIndex(fields=["vector"], name="search_vector"),
            models.Index(fields=["state"], name="search_state"),
        ]

    def __str__(self) -> str:
        return self.path

    @property
    def name(self) -> str:
        """The file's name, without its folder."""
        return PurePath(self.path).name

    @property
    def folder(self) -> str:
        """The folder that contains the file."""
        return str(PurePath(self.path).parent)


class Draft(models.Model):
    """A large document while its job indexes it in steps. Searches do not see it."""

    document = models.ForeignKey(Document, models.CASCADE)
    data = models.BinaryField()
    size = models.BigIntegerField()
    modified = models.BigIntegerField()
    digest = models.CharField(max_length=64)
    title = models.TextField(blank=True)
    text = models.TextField(blank=True)
    vector = SearchVectorField(null=True)

    def __str__(self) -> str:
        return f"draft {self.pk} of document {self.document_id}"


class Export(JobPayload):
    """All results of a search as a CSV file.

    Creating one enqueues the job that writes it, and deleting one cancels that job.
    """

    query = models.CharField(max_length=200)
    created_at = models.DateTimeField(auto_now_add=True)
    documents = models.IntegerField(null=True, editable=False)
    content = models.TextField(blank=True, editable=False)

    class Meta:
        ordering = ["-pk"]

    def __str__(self) -> str:
        return f"export {self.pk}: {self.query}"
