"""A large document, whose job has steps."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from django_pgqueue import enqueue
from django_pgqueue.models import Job
from django_pgqueue.testing import run_jobs
from example_project.search import extraction, large
from example_project.search.failures import NotText, TooLarge
from example_project.search.large import LARGE, PART, _cuts
from example_project.search.models import Document, Draft
from example_project.search.queries import search
from example_project.search.tasks import index_document

pytestmark = pytest.mark.django_db

TEXT = "# Napkins\n\n" + "".join(f"how to fold swan{number}\n" for number in range(LARGE // 19))


def document(path: Path, text: str | bytes = TEXT) -> Document:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return Document.objects.create(path=str(path), size=path.stat().st_size, modified=0)


def vector_of(row: Document) -> str:
    """Its words, with their weights and places, except those of the path, which is never the same."""
    vector = str(Document.objects.values_list("vector", flat=True).get(pk=row.pk))
    return " ".join(word for word in vector.split() if "C" not in word)


def test_its_job_has_steps_and_it_can_be_found(tmp_path: Path) -> None:
    row = document(tmp_path / "a.md")
    job = enqueue(index_document, row.pk)
    run_jobs()
    job = Job.objects.get(pk=job.pk)
    parts = [f"vectors {number}" for number in range(1, len(TEXT) // PART + 2)]
    assert [entry["name"] for entry in job.steps or []] == ["read", "extract", *parts, "publish"]
    assert (job.result or {})["outcome"] == "indexed"
    row.refresh_from_db()
    info = (tmp_path / "a.md").stat()
    assert (row.state, row.title, row.text) == ("indexed", "Napkins", TEXT)
    assert (row.size, row.modified) == (info.st_size, info.st_mtime_ns)
    assert row.indexed_at is not None
    assert [hit.document for hit in search("napkins swan7").hits] == [row]
    assert not Draft.objects.exists()


def test_a_small_one_has_no_steps(tmp_path: Path) -> None:
    job = enqueue(index_document, document(tmp_path / "a.md", "small").pk)
    run_jobs()
    job = Job.objects.get(pk=job.pk)
    assert (job.status, job.marks, job.steps) == ("done", 0, None)


def test_after_a_failure_no_step_is_repeated_and_no_word_counts_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = document(tmp_path / "whole.md")
    index_document.call(whole.pk)
    row = document(tmp_path / "a.md")
    written = 0

    @contextmanager
    def fail_after_the_third_part(path: str) -> Iterator[None]:
        nonlocal written
        yield
        written += 1
        if written == 4:  # the text was extracted first
            raise OSError(5, "Input/output error")

    monkeypatch.setattr(large, "limit_of_words", fail_after_the_third_part)
    job = enqueue(index_document, row.pk)
    run_jobs(raise_failures=False)
    assert Job.objects.get(pk=job.pk).status == "retry"
    assert search("swan7").total == 1, "a search does not find half a document"
    monkeypatch.setattr(large, "read", None)  # to read it again would fail
    Job.objects.filter(pk=job.pk).retry()
    run_jobs()
    steps = {entry["name"]: entry["attempt"] for entry in Job.objects.get(pk=job.pk).steps or []}
    first = ("read", "extract", "vectors 1", "vectors 2")
    assert {name for name, attempt in steps.items() if attempt == 1} == set(first)
    assert written == 4 + len(steps) - len(first) - 1, "the third part was written again"
    assert vector_of(row) == vector_of(whole)


@pytest.mark.parametrize(
    ("data", "failure", "cause"),
    [
        (b"\0" * LARGE, NotText, "not_text"),
        (b"x" * (1024 * 1024 + 1), TooLarge, "too_large"),
    ],
)
def test_one_that_cannot_be_indexed_says_why(
    tmp_path: Path, data: bytes, failure: type[Exception], cause: str
) -> None:
    row = document(tmp_path / "a.txt", data)
    with pytest.raises(failure):
        index_document.call(row.pk)
    row.refresh_from_db()
    assert (row.state, row.cause) == ("failed", cause)
    assert not Draft.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_more_words_than_a_search_vector_holds_is_too_large(tmp_path: Path) -> None:
    row = document(tmp_path / "a.txt", " ".join(f"w{number:x}" for number in range(120_000)))
    os.utime(tmp_path / "a.txt", ns=(0, 1))
    with pytest.raises(TooLarge, match="too many different words"):
        index_document.call(row.pk)
    row.refresh_from_db()
    assert (row.state, row.cause, row.modified) == ("failed", "too_large", 1)
    assert not Draft.objects.exists()


def test_the_same_text_is_not_indexed_again(tmp_path: Path) -> None:
    row = document(tmp_path / "a.txt")
    index_document.call(row.pk)
    Document.objects.filter(pk=row.pk).update(modified=1, state="waiting")
    assert index_document.call(row.pk)["outcome"] == "same text"
    row.refresh_from_db()
    assert (row.modified, row.state) == ((tmp_path / "a.txt").stat().st_mtime_ns, "indexed")
    assert not Draft.objects.exists()


def test_a_second_job_for_the_document_overtakes_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = document(tmp_path / "a.txt")

    def read_again(*args: Any) -> Any:
        monkeypatch.setattr(large, "extract", extraction.extract)
        assert index_document.call(row.pk)["outcome"] == "indexed"
        return extraction.extract(*args)

    monkeypatch.setattr(large, "extract", read_again)
    assert index_document.call(row.pk)["outcome"] == "overtaken"
    row.refresh_from_db()
    assert (row.state, row.text) == ("indexed", TEXT)


def test_parts_end_between_words_or_where_they_are_full() -> None:
    text = "a" * (PART - 1) + " " + "b" * (2 * PART) + "\nc"
    cuts = _cuts(text)
    assert cuts == [0, PART - 1, 2 * PART - 1, 3 * PART - 1, len(text)]
    assert _cuts("") == [0, 0]
    assert _cuts("short") == [0, 5]
