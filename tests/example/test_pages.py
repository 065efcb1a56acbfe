"""The pages of the example: search, progress, exports and the admin."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from django_pgqueue.models import Job
from django_pgqueue.testing import run_jobs
from example_project.search.exports import as_csv
from example_project.search.models import Document, Export
from example_project.search.progress import progress
from example_project.search.queries import PAGE, search
from example_project.search.tasks import index_document, write_export
from example_project.search.vectors import END, HIT, split_hits

pytestmark = [pytest.mark.django_db, pytest.mark.urls("example_project.project.urls")]


# --- Search


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


# --- Pages


def body(client: Client, address: str, **query: str) -> str:
    response = client.get(address, query)
    assert response.status_code == 200
    return response.content.decode()


def test_without_a_query_it_explains_itself(client: Client) -> None:
    assert "Type some words" in body(client, "/")


def test_answers_are_marked(client: Client, tmp_path: Path) -> None:
    add(tmp_path / "a.txt", "One red napkin")
    page = body(client, "/", q="napkins")
    assert "<mark>napkin</mark>" in page
    assert "1 document\n" in page
    assert "<strong>a.txt</strong>" in page


def test_text_title_path_and_query_are_escaped(client: Client, tmp_path: Path) -> None:
    add(
        tmp_path / "<b>a.md", "# <script>alert(1)</script>\n\nnapkin <img src=x onerror=alert(1)> & \ue000<i>"
    )
    page = body(client, "/", q='napkin or "<script>')
    assert "<script" not in page
    assert "<img" not in page
    assert "<i>" not in page
    assert "<b>" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "&lt;b&gt;a.md" in page


@pytest.mark.parametrize("query", ["nothing", "a\0b", "x" * 300, "   ", "'\"\\%", "\N{GHOST}"])
def test_odd_queries_are_answered(client: Client, query: str) -> None:
    body(client, "/", q=query)


def test_a_query_that_is_not_utf8_is_answered(client: Client) -> None:
    body(client, "/?q=%FF%ED%A0%80")


@pytest.mark.parametrize("page", ["0", "-1", "99999999999999999999", "x", "², ", "٣"])
def test_odd_page_numbers_are_answered(client: Client, tmp_path: Path, page: str) -> None:
    add(tmp_path / "a.txt", "napkin")
    assert "<mark>" in body(client, "/", q="napkin", page=page)


def test_pages_are_linked_with_the_query(client: Client, tmp_path: Path) -> None:
    for number in range(PAGE + 1):
        add(tmp_path / f"{number}.txt", "red napkin")
    assert "?q=red+napkin&amp;page=2" in body(client, "/", q="red napkin")
    assert "?q=red+napkin&amp;page=1" in body(client, "/", q="red napkin", page="2")


def test_it_needs_no_script_and_nothing_from_elsewhere(client: Client, tmp_path: Path) -> None:
    add(tmp_path / "a.txt", "napkin")
    for page in (body(client, "/", q="napkin"), body(client, "/progress/")):
        assert "<script" not in page
        assert " style=" not in page
        assert "//" not in page.replace(str(tmp_path), "")


def test_progress_reloads_often_while_there_are_jobs(client: Client) -> None:
    Document.objects.create(path="/a", size=0, modified=0, state="indexed")
    assert 'content="10"' in body(client, "/progress/")
    index_document.enqueue(1)
    page = body(client, "/progress/")
    assert 'content="1"' in page
    assert "1 of 1 files searchable, 1 job left" in page


def test_progress_may_be_framed_by_this_site_and_is_not_cached(client: Client) -> None:
    response = client.get("/progress/")
    assert response["X-Frame-Options"] == "SAMEORIGIN"
    assert "no-store" in response["Cache-Control"]


def test_progress_of_an_empty_index_says_what_to_do(client: Client) -> None:
    assert "manage.py index_folder" in body(client, "/progress/")


def test_it_only_reads(client: Client) -> None:
    assert client.post("/").status_code == 405


@pytest.fixture
def admin(client: Client) -> Client:
    client.force_login(User.objects.create_superuser("root"))
    return client


def test_documents_are_in_the_admin(admin: Client, tmp_path: Path) -> None:
    row = add(tmp_path / "a.txt", "napkin")
    assert "a.txt" in body(admin, reverse("admin:search_document_changelist"), q="a.txt")
    assert "napkin" in body(admin, reverse("admin:search_document_change", args=[row.pk]))
    assert admin.get(reverse("admin:search_document_add")).status_code == 403


def test_the_admin_indexes_again(admin: Client, tmp_path: Path) -> None:
    row = add(tmp_path / "a.txt", "napkin")
    admin.post(
        reverse("admin:search_document_changelist"), {"action": "index_again", "_selected_action": [row.pk]}
    )
    row.refresh_from_db()
    assert row.state == "waiting"
    [job] = Job.objects.filter(status="pending")
    assert job.args == [row.pk]
    assert index_document.call(row.pk)["outcome"] == "indexed"


# --- Exports


def test_a_search_is_exported(client: Client, tmp_path: Path) -> None:
    add(tmp_path / "a.txt", "One red napkin")
    add(tmp_path / "b.txt", "napkin, napkin")
    assert "Export all as CSV" in body(client, "/", q="napkin")
    response = client.post(reverse("search:new_export"), {"q": "napkin"})
    export = Export.objects.get()
    assert response["Location"] == reverse("search:export", args=[export.pk])
    page = body(client, response["Location"])
    assert "is pending." in page
    assert 'http-equiv="refresh"' in page
    file = reverse("search:export_file", args=[export.pk])
    assert client.get(file).status_code == 404
    run_jobs()
    page = body(client, response["Location"])
    assert "2 documents." in page
    assert 'http-equiv="refresh"' not in page
    lines = client.get(file).content.decode().splitlines()
    assert lines[0] == "rank,path,title"
    assert {Path(line.split(",")[1]).name for line in lines[1:]} == {"a.txt", "b.txt"}


def test_the_job_of_a_deleted_export_is_cancelled() -> None:
    export = Export.objects.create(query="napkin")
    key = export.pk
    assert Job.objects.get(pk=key).task_path == write_export.module_path
    export.delete()
    assert Job.objects.get(pk=key).status == "cancelled"


@pytest.mark.parametrize("query", ["", "   ", "a\0b", "x" * 300])
def test_what_is_no_query_is_not_exported(client: Client, query: str) -> None:
    assert client.post(reverse("search:new_export"), {"q": query}).status_code == 302
    assert not Export.objects.exists()


def test_it_is_not_made_by_a_link(client: Client) -> None:
    assert client.get(reverse("search:new_export"), {"q": "napkin"}).status_code == 405


def test_a_cell_is_no_formula(tmp_path: Path) -> None:
    add(tmp_path / "a.txt", "napkin")
    Document.objects.update(title="=HYPERLINK(1)")
    assert as_csv("napkin")[1].splitlines()[1].endswith(",'=HYPERLINK(1)")


def test_the_admin_shows_its_job(client: Client) -> None:
    client.force_login(User.objects.create_superuser("root"))
    export = Export.objects.create(query="napkin")
    page = body(client, reverse("admin:search_export_changelist"))
    assert reverse("admin:django_pgqueue_job_change", args=[export.pk]) in page
