"""The task that indexes a document: a small one in one go, and a large one in steps."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from django_pgqueue import enqueue
from django_pgqueue.models import Job
from django_pgqueue.testing import run_jobs
from example_project.search import extraction, large, small, tasks
from example_project.search.failures import Gone, NotText, TooLarge, Unindexable
from example_project.search.large import LARGE, PART, _cuts
from example_project.search.models import Document, Draft
from example_project.search.queries import search
from example_project.search.tasks import index_document

pytestmark = pytest.mark.django_db

SMALL = "# Fold a napkin\n\nswan7\n"
LONG = "# Napkins\n\n" + "".join(f"how to fold swan{number}\n" for number in range(LARGE // 19))


def document(path: Path, text: str | bytes = SMALL, size: int | None = None) -> Document:
    """Write a file, and return its row. It is indexed in steps if it was large when it was found."""
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    size = path.stat().st_size if size is None else size
    return Document.objects.create(path=str(path), size=size, modified=0)


def outcome(row: Document) -> str:
    """Index a document, and read its row anew."""
    found = str(index_document.call(row.pk)["outcome"])
    row.refresh_from_db()
    return found


def cause(row: Document) -> tuple[str, str]:
    """Return the state of a document that could not be indexed, of which nothing is left, and why."""
    row.refresh_from_db()
    assert not Draft.objects.exists()
    return row.state, row.cause


def vector_of(row: Document) -> str:
    """Its words, with their weights and places, except those of the path, which is never the same."""
    vector = str(Document.objects.values_list("vector", flat=True).get(pk=row.pk))
    return " ".join(word for word in vector.split() if "C" not in word)


@pytest.mark.parametrize(
    ("text", "title"), [(SMALL, "Fold a napkin"), (LONG, "Napkins")], ids=["small", "large"]
)
def test_makes_a_file_searchable_once(tmp_path: Path, text: str, title: str) -> None:
    row = document(tmp_path / "a.md", text)
    assert outcome(row) == "indexed"
    assert (row.state, row.title, row.text, row.cause, row.reason) == ("indexed", title, text, "", "")
    info = (tmp_path / "a.md").stat()
    assert (row.size, row.modified) == (info.st_size, info.st_mtime_ns)
    assert row.indexed_at is not None
    assert [hit.document for hit in search("napkins swan7").hits] == [row]
    before = Document.objects.values().get(pk=row.pk)
    assert outcome(row) == "same text"
    assert Document.objects.values().get(pk=row.pk) == before
    Document.objects.filter(pk=row.pk).update(modified=1, state="waiting")
    assert outcome(row) == "same text", "the file was touched"
    assert (row.modified, row.state) == (info.st_mtime_ns, "indexed")
    assert not Draft.objects.exists()


def test_a_large_one_has_steps_and_a_small_one_has_none(tmp_path: Path) -> None:
    jobs = [enqueue(index_document, document(tmp_path / text[2:5], text).pk) for text in (SMALL, LONG)]
    run_jobs()
    small_one, large_one = (Job.objects.get(pk=job.pk) for job in jobs)
    assert (small_one.status, small_one.marks, small_one.steps) == ("done", 0, None)
    parts = [f"vectors {number}" for number in range(1, len(LONG) // PART + 2)]
    assert [entry["name"] for entry in large_one.steps or []] == ["read", "extract", *parts, "publish"]
    assert (large_one.result or {})["outcome"] == "indexed"


def test_after_a_failure_no_step_is_repeated_and_no_word_counts_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = document(tmp_path / "whole.md", LONG)
    index_document.call(whole.pk)
    row = document(tmp_path / "a.md", LONG)
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
    ("data", "failure", "expected", "reason"),
    [
        (None, Gone, "gone", "no longer exists"),
        (b"\0\1\2", NotText, "not_text", "NUL"),
        (b"x" * (1024 * 1024 + 1), TooLarge, "too_large", "1,048,577 bytes; the limit is 1,048,576"),
    ],
    ids=["gone", "binary", "too large"],
)
@pytest.mark.parametrize("size", [0, LARGE], ids=["in one go", "in steps"])
def test_an_unindexable_file_fails_for_good_and_the_document_says_why(
    tmp_path: Path, size: int, data: bytes | None, failure: type[Unindexable], expected: str, reason: str
) -> None:
    row = document(tmp_path / "a.txt", data or b"", size)
    if data is None:
        (tmp_path / "a.txt").unlink()
    with pytest.raises(failure, match=reason):
        index_document.call(row.pk)
    assert cause(row) == ("failed", expected)
    assert reason in row.reason
    assert index_document.fail_on == (Unindexable,)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("size", [0, LARGE], ids=["in one go", "in steps"])
def test_more_words_than_a_search_vector_holds_is_too_large(tmp_path: Path, size: int) -> None:
    row = document(tmp_path / "a.txt", " ".join(f"w{number:x}" for number in range(120_000)), size)
    os.utime(tmp_path / "a.txt", ns=(0, 1))
    with pytest.raises(TooLarge, match="too many different words"):
        index_document.call(row.pk)
    assert cause(row) == ("failed", "too_large")
    assert row.modified == 1


def test_a_file_is_found_as_long_as_it_can_be_indexed(tmp_path: Path) -> None:
    row = document(tmp_path / "a.txt")
    for text, found in ((b"napkin", 1), (b"\0", 0), (b"napkin", 1)):
        (tmp_path / "a.txt").write_bytes(text)
        if found:
            assert outcome(row) == "indexed"
            assert (row.state, row.cause, row.reason) == ("indexed", "", "")
        else:
            with pytest.raises(NotText):
                index_document.call(row.pk)
        assert search("napkin").total == found


def test_a_transient_error_leaves_the_document_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: Path) -> None:
        raise OSError(5, "Input/output error", str(path))

    monkeypatch.setattr(small, "read", fail)
    row = document(tmp_path / "a.txt")
    with pytest.raises(OSError, match="Input/output error"):
        index_document.call(row.pk)
    assert cause(row)[0] == "waiting"


def test_a_second_job_for_the_document_overtakes_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = document(tmp_path / "a.txt", LONG)

    def read_again(*args: Any) -> Any:
        monkeypatch.setattr(large, "extract", extraction.extract)
        assert index_document.call(row.pk)["outcome"] == "indexed"
        return extraction.extract(*args)

    monkeypatch.setattr(large, "extract", read_again)
    assert outcome(row) == "overtaken"
    assert (row.state, row.text) == ("indexed", LONG)


def test_one_that_was_removed_is_no_failure_and_the_time_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([10.0, 12.5])
    # This changes only the clock of this module. Other threads of the process keep theirs.
    monkeypatch.setattr(tasks, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    assert index_document.call(0) == {"outcome": "removed", "seconds": 2.5}


def test_parts_end_between_words_or_where_they_are_full() -> None:
    text = "a" * (PART - 1) + " " + "b" * (2 * PART) + "\nc"
    cuts = _cuts(text)
    assert cuts == [0, PART - 1, 2 * PART - 1, 3 * PART - 1, len(text)]
    assert _cuts("") == [0, 0]
    assert _cuts("short") == [0, 5]
