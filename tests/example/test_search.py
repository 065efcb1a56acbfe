from __future__ import annotations

from pathlib import Path

import pytest

from example_project.search.models import Document
from example_project.search.progress import progress
from example_project.search.queries import PAGE, search
from example_project.search.tasks import index_document
from example_project.search.vectors import END, HIT, split_hits

pytestmark = pytest.mark.django_db


def add(path: Path, text: str) -> Document:
    path.write_text(text)
    row = Document.objects.create(path=str(path), size=0, modified=0)
    index_document.call(row.pk)
    return row


def found(text: str) -> list[str]:
    return [hit.document.name for hit in search(text).hits]


def test_a_title_counts_more_than_a_heading_and_that_more_than_the_text(tmp_path: Path) -> None:
    add(tmp_path / "text.md", "# Title\n## Heading\nnapkin and other words")
    add(tmp_path / "heading.md", "# Title\n## Napkin\nsome and other words")
    add(tmp_path / "title.md", "# Napkin\n## Heading\nsome and other words")
    assert found("napkin") == ["title.md", "heading.md", "text.md"]


def test_finds_by_the_words_of_the_path(tmp_path: Path) -> None:
    add(tmp_path / "folded_napkin.txt", "nothing")
    assert found("napkin") == ["folded_napkin.txt"]


def test_words_of_dotted_names_and_paths_are_found(tmp_path: Path) -> None:
    add(tmp_path / "a.py", "x = os.path.join(base, 'usr/share/dict')")
    for query in ("join", "os.path.join", "path/join", "share", "usr/share"):
        assert found(query) == ["a.py"], query


def test_text_about_html_is_no_html(tmp_path: Path) -> None:
    add(tmp_path / "a.py", "'<script>' begins what ends with the next napkin, <img src=fork>")
    for query in ("script", "napkin", "fork", "<img"):
        assert found(query) == ["a.py"], query


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("red napkin", ["a.txt", "b.txt"]),
        ('"red napkin"', ["a.txt"]),
        ("red -folded", ["a.txt"]),
        ("blue or folded", ["b.txt", "c.txt"]),
        ("napkins", ["a.txt", "b.txt"]),
        ("absent", []),
        ("the", []),
        ("((( & ! <->", []),
        ("'; DROP", []),
        ('"', []),
    ],
)
def test_queries_as_people_type_them(tmp_path: Path, query: str, expected: list[str]) -> None:
    add(tmp_path / "a.txt", "one red napkin")
    add(tmp_path / "b.txt", "a napkin, folded, red")
    add(tmp_path / "c.txt", "all blue")
    assert sorted(found(query)) == expected


def test_marks_what_matched_and_keeps_the_rest_as_it_is(tmp_path: Path) -> None:
    add(tmp_path / "a.py", "assert something < other: os.path.join('<b>x</b>') & 1, something")
    [hit] = search("join").hits
    assert ("join", True) in hit.pieces
    text = "".join(piece for piece, _ in hit.pieces)
    assert "something < other: os.path.join('<b>x</b>') & 1, something" in text
    assert "\u200b" not in text


@pytest.mark.parametrize(
    ("headline", "pieces"),
    [
        ("", []),
        ("no match", [("no match", False)]),
        (f"a {HIT}b{END} c", [("a ", False), ("b", True), (" c", False)]),
        (f"{HIT}a{END}{HIT}b{END}", [("a", True), ("b", True)]),
        (f"{HIT}not closed", [("not closed", False)]),
        (f"{END}closed {HIT}a{END}{END}b", [("closed ", False), ("a", True), ("b", False)]),
    ],
)
def test_splits_a_headline_whatever_the_text_holds(headline: str, pieces: list[tuple[str, bool]]) -> None:
    assert split_hits(headline) == pieces


def test_pages(tmp_path: Path) -> None:
    for number in range(PAGE + 2):
        add(tmp_path / f"{number:02}.txt", "napkin")
    first, second = search("napkin"), search("napkin", 2)
    assert (first.total, first.pages, len(first.hits), len(second.hits)) == (PAGE + 2, 2, PAGE, 2)
    seen = {hit.document.pk for answers in (first, second) for hit in answers.hits}
    assert len(seen) == PAGE + 2
    assert search("napkin", 99).page == 2
    assert search("napkin", -1).page == 1
    assert search("absent", 2).page == 1


def test_progress_counts_documents_by_state_and_live_jobs() -> None:
    for number, state in enumerate(["indexed", "indexed", "failed", "waiting"]):
        Document.objects.create(path=f"/{number}", size=0, modified=0, state=state)
    index_document.enqueue(1)
    now = progress()
    assert (now.indexed, now.failed, now.waiting, now.jobs, now.total) == (2, 1, 1, 1, 4)
