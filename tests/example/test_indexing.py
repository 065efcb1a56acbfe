from __future__ import annotations

import os
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from django.db import transaction

from django_pgqueue import cancel
from django_pgqueue.models import Job
from example_project.search.indexing import index_folders
from example_project.search.models import Document
from example_project.search.tasks import index_document

pytestmark = pytest.mark.django_db


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
