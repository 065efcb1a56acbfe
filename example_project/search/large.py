"""Index a large document in steps, so that a job whose worker dies continues behind its last step.

A large document is prepared in a `Draft`, so that a search never finds half of it. Each step is atomic,
because adding the same part twice would count its words twice. The results of the steps are small: the text
and the vector stay in the draft. A small document has no steps, because indexing it again takes milliseconds.
"""

from __future__ import annotations

import hashlib
from itertools import pairwise
from pathlib import Path

from django.db.models import Subquery
from django.db.models.functions import Now

from django_pgqueue import step, track

from .extraction import extract, is_python
from .failures import Unindexable
from .models import Document, Draft
from .reading import decode, read
from .vectors import head_vector, longer_vector
from .writing import limit_of_words, write_failure, write_same

LARGE = 256_000  # bytes
PART = 32_000  # characters
PUBLISHED = ("size", "modified", "digest", "title", "text", "vector")


def index_large(document: Document) -> str:
    """Index the file of a document. Return what was done.

    A second job for the same document deletes the draft of the first one, which then has nothing left to do.
    """
    draft_id = None
    try:
        draft_id = read_file(document.pk)
        if draft_id is None:
            return "same text"
        parts = [*pairwise(extract_text(draft_id))]
        for part, (start, end) in enumerate(track(parts, note=document.name), 1):
            add_part.named(f"vectors {part}")(draft_id, start, end)
        publish(draft_id)
    except Draft.DoesNotExist:
        return "overtaken"
    except Unindexable as failure:
        draft = Draft.objects.defer("data", "text", "vector").get(pk=draft_id) if draft_id else None
        write_failure(document, draft, failure)
        if draft:
            draft.delete()
        raise
    return "indexed"


@step(name="read", atomic=True)
def read_file(document_id: int) -> int | None:
    """Copy the file into a draft and return its id, or return None if the text is the one that is indexed."""
    document = Document.objects.only("path", "digest").get(pk=document_id)
    contents = read(Path(document.path))
    digest = hashlib.sha256(contents.data).hexdigest()
    Draft.objects.filter(document=document).delete()
    if digest == document.digest:
        write_same(document, contents)
        return None
    draft = Draft.objects.create(
        document=document,
        data=contents.data,
        size=contents.size,
        modified=contents.modified,
        digest=digest,
    )
    return draft.pk


@step(name="extract", atomic=True)
def extract_text(draft_id: int) -> list[int]:
    """Find the title, the headings and the text. Return the positions where the text is cut into parts."""
    draft = Draft.objects.select_related("document").only("data", "document__path").get(pk=draft_id)
    path = draft.document.path
    found = extract(path, decode(bytes(draft.data), python=is_python(path)))
    with limit_of_words(path):
        Draft.objects.filter(pk=draft_id).update(
            title=found.title, text=found.text, vector=head_vector(found.title, found.headings, path)
        )
    return _cuts(found.text)


@step(atomic=True)
def add_part(draft_id: int, start: int, end: int) -> None:
    """Add the words of a part of the text to the vector."""
    draft = Draft.objects.select_related("document").only("document__path").get(pk=draft_id)
    with limit_of_words(draft.document.path):
        Draft.objects.filter(pk=draft_id).update(vector=longer_vector(start, end))


@step(atomic=True)
def publish(draft_id: int) -> None:
    """Move the draft into its document, where searches find it."""
    draft = Draft.objects.select_for_update().only("document_id").get(pk=draft_id)
    row = Draft.objects.filter(pk=draft_id)
    Document.objects.filter(pk=draft.document_id).update(
        state=Document.State.INDEXED,
        cause="",
        reason="",
        indexed_at=Now(),
        **{name: Subquery(row.values(name)) for name in PUBLISHED},
    )
    draft.delete()


def _cuts(text: str) -> list[int]:
    """Return the start of each part and the end of the text. A word is not cut, unless it fills a part."""
    cuts = [0]
    while len(text) - cuts[-1] > PART:
        limit = cuts[-1] + PART
        blank = max(text.rfind(" ", cuts[-1], limit), text.rfind("\n", cuts[-1], limit))
        cuts.append(blank if blank > cuts[-1] else limit)
    return [*cuts, len(text)]
