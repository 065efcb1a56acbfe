from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from example_project.search import small, tasks
from example_project.search.failures import Gone, NotText, TooLarge, Unindexable
from example_project.search.models import Document
from example_project.search.queries import search
from example_project.search.tasks import index_document

pytestmark = pytest.mark.django_db


def document(path: Path) -> Document:
    return Document.objects.create(path=str(path), size=0, modified=0)


def test_makes_a_file_searchable(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text('"""Fold a napkin."""\ndef swan(): ...\n')
    row = document(tmp_path / "a.py")
    result = index_document.call(row.pk)
    assert result["outcome"] == "indexed"
    assert 0 < result["seconds"] < 60
    row.refresh_from_db()
    assert (row.state, row.title, row.cause, row.reason) == ("indexed", "Fold a napkin.", "", "")
    info = (tmp_path / "a.py").stat()
    assert (row.size, row.modified) == (info.st_size, info.st_mtime_ns)
    assert row.indexed_at is not None
    assert [hit.document for hit in search("napkins swan").hits] == [row]


def test_running_twice_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("text")
    row = document(tmp_path / "a.txt")
    index_document.call(row.pk)
    before = Document.objects.values().get(pk=row.pk)
    assert index_document.call(row.pk)["outcome"] == "same text"
    assert Document.objects.values().get(pk=row.pk) == before


def test_a_touched_file_is_not_indexed_anew_but_its_time_is_noted(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("text")
    row = document(tmp_path / "a.txt")
    index_document.call(row.pk)
    Document.objects.filter(pk=row.pk).update(modified=1, state="waiting")
    assert index_document.call(row.pk)["outcome"] == "same text"
    row.refresh_from_db()
    assert (row.modified, row.state) == ((tmp_path / "a.txt").stat().st_mtime_ns, "indexed")


def test_a_document_that_was_removed_meanwhile_is_no_failure() -> None:
    assert index_document.call(0)["outcome"] == "removed"


@pytest.mark.parametrize(
    ("data", "failure", "cause", "reason"),
    [
        (None, Gone, "gone", "no longer exists"),
        (b"\0\1\2", NotText, "not_text", "NUL"),
        (b"x" * (1024 * 1024 + 1), TooLarge, "too_large", "1,048,577 bytes; the limit is 1,048,576"),
    ],
)
def test_an_unindexable_file_fails_and_the_document_says_why(
    tmp_path: Path, data: bytes | None, failure: type[Unindexable], cause: str, reason: str
) -> None:
    if data is not None:
        (tmp_path / "a.txt").write_bytes(data)
    row = document(tmp_path / "a.txt")
    with pytest.raises(failure, match=reason):
        index_document.call(row.pk)
    row.refresh_from_db()
    assert (row.state, row.cause) == ("failed", cause)
    assert reason in row.reason


def test_such_a_failure_is_not_retried() -> None:
    assert index_document.fail_on == (Unindexable,)


def test_a_file_that_becomes_unindexable_is_not_found_any_more(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("napkin")
    row = document(tmp_path / "a.txt")
    index_document.call(row.pk)
    (tmp_path / "a.txt").write_bytes(b"\0")
    with pytest.raises(NotText):
        index_document.call(row.pk)
    assert search("napkin").total == 0


def test_and_is_found_again_when_it_is_mended(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\0")
    row = document(tmp_path / "a.txt")
    with pytest.raises(NotText):
        index_document.call(row.pk)
    (tmp_path / "a.txt").write_text("napkin")
    index_document.call(row.pk)
    row.refresh_from_db()
    assert (row.state, row.cause, row.reason) == ("indexed", "", "")
    assert search("napkin").total == 1


@pytest.mark.django_db(transaction=True)
def test_more_words_than_a_search_vector_holds_is_too_large(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(" ".join(f"w{number:x}" for number in range(120_000)))
    row = document(tmp_path / "a.txt")
    with pytest.raises(TooLarge, match="too many different words"):
        index_document.call(row.pk)
    row.refresh_from_db()
    assert (row.state, row.cause) == ("failed", "too_large")


def test_a_transient_error_leaves_the_document_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: Path) -> None:
        raise OSError(5, "Input/output error", str(path))

    monkeypatch.setattr(small, "read", fail)
    row = document(tmp_path / "a.txt")
    with pytest.raises(OSError, match="Input/output error"):
        index_document.call(row.pk)
    row.refresh_from_db()
    assert row.state == "waiting"


def test_the_time_it_reports_is_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([10.0, 12.5])
    # This changes only the clock of this module. Other threads of the process keep theirs.
    monkeypatch.setattr(tasks, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    assert index_document.call(0) == {"outcome": "removed", "seconds": 2.5}
