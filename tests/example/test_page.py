from __future__ import annotations

from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from django_pgqueue.models import Job
from example_project.search.models import Document
from example_project.search.queries import PAGE
from example_project.search.tasks import index_document

pytestmark = [pytest.mark.django_db, pytest.mark.urls("example_project.project.urls")]


def add(path: Path, text: str) -> Document:
    path.write_text(text)
    row = Document.objects.create(path=str(path), size=0, modified=0)
    index_document.call(row.pk)
    return row


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
