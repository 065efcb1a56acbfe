"""A run of the indexer: a batch, whose last job sums it up."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.db import connection
from django.test import Client
from django.urls import reverse

from django_pgqueue import Batch
from django_pgqueue.models import Job, JobProgress
from django_pgqueue.testing import run_jobs
from example_project.search.completeness import troubles
from example_project.search.indexing import Report, index_folders
from example_project.search.models import Document, Run
from example_project.search.progress import progress

pytestmark = [pytest.mark.django_db, pytest.mark.urls("example_project.project.urls")]


@pytest.fixture
def report(tmp_path: Path) -> Report:
    for name in ("a.txt", "b.md"):
        (tmp_path / name).write_text(f"words of {name}")
    (tmp_path / "binary.txt").write_bytes(b"\0")
    return index_folders([tmp_path])


def summary_of(report: Report) -> Job:
    assert report.summary is not None
    return Job.objects.get(pk=report.summary.pk)


def run_of(report: Report) -> Run:
    assert report.run is not None
    return Run.objects.get(pk=report.run.pk)


def test_its_last_job_waits_for_all_and_sums_it_up(report: Report, client: Client) -> None:
    summary = summary_of(report)
    assert summary.status == "blocked"
    batch = run_of(report).batch_id
    assert summary.parent_ids == [batch]
    assert set(Batch.get(batch).jobs.values_list("pk", flat=True)) == set(report.job_ids)
    run_jobs(raise_failures=False, limit=2)
    assert summary_of(report).status == "blocked"
    run = progress().run
    assert run is not None
    assert (run.total, run.over) == (3, 2)
    assert b'<progress max="3" value="2"' in client.get("/progress/").content
    run_jobs(raise_failures=False)
    assert summary_of(report).status == "done"
    expected = {"files": 3, "indexed": 2, "failed": {"not_text": 1}, "troubles": []}
    assert run_of(report).summary == expected
    assert summary_of(report).result == expected
    run = progress().run
    assert run is not None
    assert (run.total, run.over, run.failed) == (3, 3, 1)


def test_nothing_to_index_is_no_run(report: Report, tmp_path: Path) -> None:
    again = index_folders([tmp_path])
    assert (again.run, again.summary, Run.objects.count()) == (None, None, 1)


def test_a_run_whose_batch_is_no_longer_kept_has_no_progress() -> None:
    Run.objects.create(batch_id=0, files=1)
    assert progress().run is None


def test_runs_are_in_the_admin(report: Report, admin_client: Client) -> None:
    run = run_of(report)
    page = admin_client.get(reverse("admin:search_run_changelist")).content.decode()
    assert "0 of 3 jobs have finished" in page
    assert reverse("admin:django_pgqueue_jobbatch_change", args=[run.batch_id]) in page
    run_jobs(raise_failures=False)
    page = admin_client.get(reverse("admin:search_run_change", args=[run.pk])).content.decode()
    assert "3 of 3 jobs have finished, 1 failed" in page
    assert "not_text" in page


def test_the_parts_of_a_large_document_are_a_bar(report: Report, client: Client) -> None:
    job = report.job_ids[0]
    Job.objects.filter(pk=job).update(status="running", lease=1, worker=1, marks=8)
    JobProgress.objects.create(job_id=job, done=7, total=33, note="<a>.txt")
    page = client.get("/progress/").content.decode()
    assert '<progress max="33" value="7" aria-label="&lt;a&gt;.txt">' in page
    assert "<p>7 of 33 parts of &lt;a&gt;.txt</p>" in page


COPY = """
    INSERT INTO pgqueue_job (id, shelf, status, finished_at, task_path, args, batch)
    SELECT id, shelf % 2 + 1, status, finished_at, task_path, args, batch FROM pgqueue_job WHERE id = {job}
"""


@pytest.mark.parametrize(
    ("damage", "trouble"),
    [
        ("DELETE FROM search_document WHERE id = {document}", "1 files without a document"),
        ("DELETE FROM pgqueue_job WHERE id = {job}", "1 jobs are missing"),
        ("DELETE FROM pgqueue_job WHERE id = {job}", "1 documents without a job"),
        (COPY, "1 jobs exist twice"),
        (COPY, "1 documents with two jobs"),
        ("UPDATE search_document SET state = 'waiting' WHERE id = {document}", "1 documents do not match"),
        ("UPDATE search_document SET vector = NULL WHERE id = {document}", "1 documents do not match"),
    ],
)
def test_a_hole_in_the_index_is_found(report: Report, damage: str, trouble: str) -> None:
    run_jobs(raise_failures=False)
    assert troubles(run_of(report)) == []
    document = Document.objects.get(path__endswith="/a.txt")
    job = Job.objects.get(batch_id=run_of(report).batch_id, args=[document.pk])
    with connection.cursor() as cursor:
        cursor.execute(damage.format(job=job.pk, document=document.pk))
    found = troubles(run_of(report))
    assert any(line.startswith(trouble) for line in found), found
