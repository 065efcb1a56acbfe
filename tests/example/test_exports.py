"""Exports of search results: rows that are jobs."""

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
from example_project.search.tasks import write_export

from .test_page import add, body

pytestmark = [pytest.mark.django_db, pytest.mark.urls("example_project.project.urls")]


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
