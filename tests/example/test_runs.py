"""A run of the indexer: which documents and jobs it makes, and the batch whose last job sums it up."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from django.test import Client
from django.urls import reverse

from django_pgqueue import Batch, cancel
from django_pgqueue.models import Job, JobProgress
from django_pgqueue.schedules.declare import _declared
from django_pgqueue.testing import run_jobs
from example_project.search.completeness import troubles
from example_project.search.indexing import Report, index_folders
from example_project.search.models import Document, Run
from example_project.search.progress import progress
from example_project.search.tasks import index_document

pytestmark = [pytest.mark.django_db, pytest.mark.urls("example_project.project.urls")]


# --- Folders


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("a.txt", "b/c.md", "b/d.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"words of {name}")
    return tmp_path


def work_off() -> None:
    """Change the rows that a second run reads, as a worker would."""
    for pk in Document.objects.filter(state="waiting").values_list("pk", flat=True):
        index_document.call(pk)
    Job.objects.filter(status="pending").cancel()


def names(documents: list[Document]) -> list[str]:
    return sorted(document.name for document in documents)


def test_one_document_and_one_job_for_each_file(folder: Path) -> None:
    report = index_folders([folder])
    assert (report.new, report.changed, report.unchanged, report.removed) == (3, 0, 0, 0)
    documents = Document.objects.all()
    assert names(list(documents)) == ["a.txt", "c.md", "d.py"]
    assert {document.state for document in documents} == {"waiting"}
    jobs = Job.objects.filter(pk__in=report.job_ids)
    assert sorted(job.args[0] for job in jobs) == sorted(document.pk for document in documents)
    assert {(job.status, job.queue_name) for job in jobs} == {("pending", "index")}


def test_a_rollback_takes_documents_and_jobs_away(folder: Path) -> None:
    with transaction.atomic():
        report = index_folders([folder])
        assert len(report.job_ids) == 3
        transaction.set_rollback(True)
    assert not Document.objects.exists()
    assert not Job.objects.filter(pk__in=report.job_ids).exists()


def test_smaller_files_have_a_higher_priority(tmp_path: Path) -> None:
    for size in (100, 10_000, 100_000, 1_000_000):
        (tmp_path / f"{size}.txt").write_text("x" * size)
    index_folders([tmp_path])
    by_size = dict(Document.objects.values_list("pk", "size"))
    jobs = sorted(Job.objects.filter(status="pending"), key=lambda job: by_size[job.args[0]])
    assert [job.priority for job in jobs] == [40, 30, 10, 0]


def test_a_second_run_beside_the_first_one_enqueues_nothing(folder: Path) -> None:
    index_folders([folder])
    again = index_folders([folder])
    assert (again.new, again.changed, again.unchanged, again.job_ids) == (0, 0, 3, [])


def test_a_second_run_indexes_only_what_changed(folder: Path) -> None:
    index_folders([folder])
    work_off()
    (folder / "a.txt").write_text("longer than it was before")
    (folder / "new.txt").write_text("new")
    os.utime(folder / "b/c.md", ns=(0, 1))
    again = index_folders([folder])
    assert (again.new, again.changed, again.unchanged) == (1, 2, 1)
    waiting = Document.objects.filter(state="waiting")
    assert names(list(waiting)) == ["a.txt", "c.md", "new.txt"]
    assert len(again.job_ids) == 3


def test_a_document_whose_file_is_gone_is_removed(folder: Path) -> None:
    index_folders([folder])
    (folder / "a.txt").unlink()
    assert index_folders([folder]).removed == 1
    assert names(list(Document.objects.all())) == ["c.md", "d.py"]


def test_documents_of_other_folders_stay(folder: Path) -> None:
    sibling = folder.with_name(f"{folder.name}2")
    sibling.mkdir()
    (sibling / "kept.txt").write_text("a name that begins like the other folder's")
    index_folders([folder, sibling])
    again = index_folders([folder / "b"])
    assert (again.unchanged, again.removed) == (2, 0)
    assert Document.objects.count() == 4


def test_folders_one_inside_the_other_index_a_file_once(folder: Path) -> None:
    assert index_folders([folder, folder / "b"]).new == 3


def test_a_document_that_waits_in_vain_gets_a_new_job(folder: Path) -> None:
    cancel(Job.objects.filter(pk__in=index_folders([folder]).job_ids))
    assert len(index_folders([folder]).job_ids) == 3


@pytest.mark.parametrize(
    ("cause", "jobs"), [("gone", 1), ("unreadable", 1), ("not_text", 0), ("too_large", 0)]
)
def test_which_failures_are_tried_again_though_the_file_looks_the_same(
    folder: Path, cause: str, jobs: int
) -> None:
    index_folders([folder])
    work_off()
    Document.objects.filter(path__endswith="a.txt").update(state="failed", cause=cause)
    assert len(index_folders([folder]).job_ids) == jobs


def test_a_limit_is_obeyed_and_counted(folder: Path) -> None:
    report = index_folders([folder], limit=2)
    assert (report.new, report.skipped) == (2, {"over the limit": 1})


def test_the_command_reports(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "picture.png").write_bytes(b"")
    call_command("index_folder", str(folder), "--suffix", "md", "--suffix", ".PY")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "2 new, 0 changed, 0 unchanged, 0 removed"
    assert sorted(lines[1:3]) == ["1 skipped: binary suffix", "1 skipped: other suffix"]
    assert lines[3].startswith("2 jobs enqueued in ")


def test_the_command_takes_relative_paths(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    call_command("index_folder", ".")
    assert Document.objects.filter(path=str(folder.resolve() / "a.txt")).exists()


def test_the_command_refuses_what_is_no_folder(folder: Path) -> None:
    with pytest.raises(CommandError, match="is not a folder"):
        call_command("index_folder", str(folder / "a.txt"))


# --- Runs


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


# --- At fixed times


@pytest.fixture
def tasks() -> Iterator[ModuleType]:
    """The module, without its schedules, which would otherwise run in other tests of this process."""
    before = dict(_declared)
    from example_project.demo import tasks

    yield tasks
    _declared.clear()
    _declared.update(before)


def test_documents_are_counted_by_state(tasks: ModuleType) -> None:
    for number, state in enumerate(("indexed", "indexed", "failed")):
        Document.objects.create(path=f"/{number}", size=0, modified=0, state=state)
    assert tasks.count_documents.call() == {"waiting": 0, "indexed": 2, "failed": 1}


def test_documents_without_a_file_are_removed(tasks: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "there").touch()
    for name in ("there", "gone"):
        Document.objects.create(path=str(tmp_path / name), size=0, modified=0)
    assert tasks.forget_missing_files.call() == 1
    assert Document.objects.get().name == "there"
    assert tasks.forget_missing_files.call() == 0
