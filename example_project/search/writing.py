"""Write to a document what a job has found: its text, or the reason why there is none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import OperationalError

from .failures import TooLarge, Unindexable
from .models import Document, Draft
from .reading import Contents

PROGRAM_LIMIT_EXCEEDED = "54000"
Version = Contents | Draft  # both know which version of the file was read


def write(document: Document, version: Version | None, **changes: object) -> None:
    """Update the row, if it still exists, with the version of the file that was read."""
    if version is not None:
        changes |= {"size": version.size, "modified": version.modified}
    Document.objects.filter(pk=document.pk).update(**changes)


def write_same(document: Document, version: Version) -> None:
    """Note that this version of the file has the text that is indexed."""
    write(document, version, state=Document.State.INDEXED, cause="", reason="")


def write_failure(document: Document, version: Version | None, failure: Unindexable) -> None:
    """Store the reason in the document, and delete the text of an older version so that searches miss it."""
    write(
        document,
        version,
        digest="",
        state=Document.State.FAILED,
        cause=failure.cause,
        reason=str(failure),
        title="",
        text="",
        vector=None,
        indexed_at=None,
    )


@contextmanager
def limit_of_words(path: str) -> Iterator[None]:
    """Raise TooLarge if PostgreSQL cannot put all words into one search vector."""
    try:
        yield
    except OperationalError as error:
        if getattr(error.__cause__, "sqlstate", None) != PROGRAM_LIMIT_EXCEEDED:
            raise
        raise TooLarge(f"{path} has too many different words: {error}") from error
