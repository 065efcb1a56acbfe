"""Index a small document at once. One statement writes all of it, so a job that runs twice does no harm."""

from __future__ import annotations

import hashlib
from pathlib import Path

from django.db.models.functions import Now

from .extraction import extract, is_python
from .failures import Unindexable
from .models import Document
from .reading import Contents, decode, read
from .vectors import document_vector
from .writing import limit_of_words, write, write_failure, write_same


def index_small(document: Document) -> str:
    """Index the file of a document. Return what was done."""
    contents = None
    try:
        contents = read(Path(document.path))
        digest = hashlib.sha256(contents.data).hexdigest()
        if digest == document.digest:
            write_same(document, contents)
            return "same text"
        _write_text(document, contents, digest)
    except Unindexable as failure:
        write_failure(document, contents, failure)
        raise
    return "indexed"


def _write_text(document: Document, contents: Contents, digest: str) -> None:
    found = extract(document.path, decode(contents.data, python=is_python(document.path)))
    with limit_of_words(document.path):
        write(
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
