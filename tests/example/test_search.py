"""The search engine of the example: its documents and runs, its pages, exports and the admin."""

from __future__ import annotations

import codecs
import os
import time
from contextlib import nullcontext
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import transaction
from django.test import Client
from django.urls import reverse

from django_pgqueue import Batch, cancel, enqueue
from django_pgqueue.models import Job
from django_pgqueue.testing import run_jobs
from example_project.search.completeness import troubles
from example_project.search.discovery import walk
from example_project.search.exports import as_csv
from example_project.search.extraction import extract
from example_project.search.failures import Gone, NotText, TooLarge, Unindexable
from example_project.search.indexing import Report, index_folders
from example_project.search.large import LARGE, PART
from example_project.search.models import Document, Draft, Export, Run
from example_project.search.progress import progress
from example_project.search.queries import PAGE, search
from example_project.search.reading import decode
from example_project.search.tasks import index_document
from tests.support.jobs import fetch

pytestmark = [pytest.mark.django_db, pytest.mark.urls("example_project.project.urls")]

SMALL = "# Fold a napkin\n\nswan7\n"
LONG = "# Napkins\n\n" + "".join(f"how to fold swan{number}\n" for number in range(LARGE // 19))

# --- Files


def make(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("four")


def test_a_walk_skips_and_counts_what_is_of_no_use(tmp_path: Path) -> None:
    make(tmp_path, "b.txt", "a/z.md", "__pycache__/a.txt", ".git/a.txt", "a.PNG", "a/kept.txt", "real")
    os.mkfifo(tmp_path / "pipe.txt")
    for name, target in (("linked.txt", "real"), ("loop", "")):
        (tmp_path / name).symlink_to(tmp_path / target)
    result = walk(tmp_path)
    names = [str(Path(file.path).relative_to(tmp_path)) for file in result.files]
    assert names == ["a/kept.txt", "a/z.md", "b.txt", "linked.txt", "real"]
    assert dict(result.skipped) == {
        "binary suffix": 1, "cache folder": 1, "version-control folder": 1, "link to a folder": 1,
        "not a regular file": 1,
    }  # fmt: skip


COOKIE = "#!/usr/bin/python\n# -*- coding: latin-1 -*-\nname = 'naïve'\n"


@pytest.mark.parametrize(
    ("data", "python", "text"),
    [
        (b"a\r\nb\rc\n", False, "a\nb\nc\n"), ("naïve".encode(), False, "naïve"),
        (codecs.BOM_UTF16_LE + "naïve".encode("utf-16-le"), False, "naïve"),
        (COOKIE.encode("latin-1"), True, COOKIE),
        (COOKIE.encode("latin-1"), False, None),  # a cookie counts in Python only
        (b"# coding: rot13\n", True, None),  # not a codec of bytes
        (b"caf\xe9 au lait", False, None), (b"abc\0def", False, None),
    ],
)  # fmt: skip
def test_decodes_by_marks_and_cookies(data: bytes, python: bool, text: str | None) -> None:
    with pytest.raises(NotText) if text is None else nullcontext():
        assert decode(data, python=python) == text


HTML = """<!doctype html><html><head><title>A &amp; B</title><style>p { color: red }</style></head>
<body><h1>Big <em>thing</em></h1><p>un<b>bold</b>ed caf&eacute;<br>next</p><h2></h2>
<script>if (a < b) hidden()</script><h2>Small</h2></body></html>"""


@pytest.mark.parametrize(
    ("name", "text", "title", "headings"),
    [
        ("notes/LICENSE", "\n  MIT  License\n\nPermission is hereby granted", "MIT License", ""),
        ("story.txt", "word " * 40, "story.txt", ""),  # its first line is too long for a title
        ("a.md", "# Real\n\n```sh\n# not one\n```\n\nThird\n---\n\n- item\n---\n", "Real", "Real\nThird"),
        ("a.md", '---\ntitle: "A post"\n---\n# Heading\nwords\n', "A post", "Heading"),
        ("a.rst", "=====\nTitle\n=====\n\nSection\n-------\n", "Title", "Title\nSection"),
        ("a.html", HTML, "A & B", "Big thing\nSmall"),
        ("a.py", '"""Walk a tree."""\nclass A:\n    def run(self): ...\n', "Walk a tree.", "A\nrun"),
        ("a.py", '"""never closed', "a.py", ""),
    ],
)
def test_each_format_has_its_title_and_headings(name: str, text: str, title: str, headings: str) -> None:
    assert (extract(name, text).title, extract(name, text).headings) == (title, headings)
    assert extract("a.html", HTML).text == "Big thing\nunbolded café\nnext\nSmall"


@pytest.mark.parametrize("name", ["a.txt", "a.md", "a.rst", "a.py", "a.html"])
def test_no_pattern_takes_for_ever(name: str) -> None:
    for unit in ("\n", "#\n", "=\n", "`", "<", "a\n-\n", '"""', "```\n", "<p>", "---\n", " " * 8, "\\"):
        # Only the time of this thread is measured. Patterns whose time grows with the length take a
        # hundredth of it; those whose time grows with its square take several times as much.
        before = time.thread_time()
        extract(name, unit * (100_000 // len(unit)))
        assert time.thread_time() - before < 5, unit


# --- Documents


def document(path: Path, text: str | bytes = SMALL, size: int | None = None) -> Document:
    """Write a file, and return its row. It is indexed in steps if it was large when it was found."""
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    size = path.stat().st_size if size is None else size
    return Document.objects.create(path=str(path), size=size, modified=0)


def add(path: Path, text: str) -> Document:
    row = document(path, text, 0)
    index_document.call(row.pk)
    return row


def found(text: str) -> list[str]:
    return [hit.document.name for hit in search(text).hits]


@pytest.mark.parametrize(
    ("text", "title"), [(SMALL, "Fold a napkin"), (LONG, "Napkins")], ids=["small", "large"]
)
def test_a_job_makes_a_file_searchable_once(tmp_path: Path, text: str, title: str) -> None:
    row = document(tmp_path / "a.md", text)
    job = enqueue(index_document, row.pk)
    run_jobs()
    row.refresh_from_db()
    assert (row.state, row.title, row.text, row.cause) == ("indexed", title, text, "")
    assert (row.size, row.modified) == (len(text), (tmp_path / "a.md").stat().st_mtime_ns)
    assert found("napkins swan7") == ["a.md"]
    steps = [entry["name"] for entry in Job.objects.get(pk=job.pk).steps or []]
    parts = [f"vectors {number}" for number in range(1, len(LONG) // PART + 2)]
    assert steps == (["read", "extract", *parts, "publish"] if text == LONG else [])
    assert index_document.call(row.pk)["outcome"] == "same text"
    assert not Draft.objects.exists()


@pytest.mark.parametrize(
    ("data", "failure", "cause"),
    [
        (None, Gone, "gone"),
        (b"\0\1\2", NotText, "not_text"),
        (b"x" * (1024 * 1024 + 1), TooLarge, "too_large"),
        (" ".join(f"w{number:x}" for number in range(120_000)).encode(), TooLarge, "too_large"),
    ],
    ids=["gone", "binary", "too large", "too many words"],
)
@pytest.mark.parametrize("size", [0, LARGE], ids=["in one go", "in steps"])
@pytest.mark.django_db(transaction=True)
def test_an_unindexable_file_fails_for_good_and_the_document_says_why(
    tmp_path: Path, size: int, data: bytes | None, failure: type[Unindexable], cause: str
) -> None:
    row = document(tmp_path / "a.txt", data or b"", size)
    if data is None:
        (tmp_path / "a.txt").unlink()
    with pytest.raises(failure):
        index_document.call(row.pk)
    row.refresh_from_db()
    assert (row.state, row.cause, bool(row.reason)) == ("failed", cause, True)
    assert not Draft.objects.exists()


# --- Search


def test_queries_as_people_type_them(tmp_path: Path) -> None:
    add(tmp_path / "a.txt", "one red napkin")
    add(tmp_path / "b.txt", "a napkin, folded, red")
    add(tmp_path / "c.py", "x = os.path.join(base, 'usr/share/dict') # <script> all blue <img src=fork>")
    for query, expected in {
        "red napkin": "a.txt b.txt", '"red napkin"': "a.txt", "red -folded": "a.txt",
        "napkins": "a.txt b.txt", "blue or folded": "b.txt c.py", "c.py": "c.py", "os.path.join": "c.py",
        "usr/share": "c.py", "script": "c.py",
        "fork": "c.py", "absent": "", "the": "", "((( & ! <->": "", "'; DROP": "", '"': "",
    }.items():  # fmt: skip
        assert sorted(found(query)) == expected.split(), query
    [hit] = search("join").hits
    assert ("join", True) in hit.pieces
    assert "path.join(base, 'usr/share/dict') # <script>" in "".join(piece for piece, _ in hit.pieces)


def body(client: Client, address: str, **query: str) -> str:
    response = client.get(address, query)
    assert response.status_code == 200
    return response.content.decode()


def test_the_pages_of_answers(client: Client, tmp_path: Path) -> None:
    for number in range(PAGE + 1):
        add(tmp_path / f"{number:02}.txt", "One red napkin")
    first, second = search("napkin"), search("napkin", 2)
    assert (first.total, first.pages, len(first.hits), len(second.hits)) == (PAGE + 1, 2, PAGE, 1)
    assert (search("napkin", 99).page, search("napkin", -1).page) == (2, 1)
    page = body(client, "/", q="red napkins")
    assert "<mark>napkin</mark>" in page
    assert "?q=red+napkins&amp;page=2" in page
    for odd in ("0", "99999999999999999999", "x", "²"):
        assert "<mark>" in body(client, "/", q="napkin", page=odd)
    assert client.post("/").status_code == 405


def test_text_title_path_and_query_are_escaped(client: Client, tmp_path: Path) -> None:
    add(
        tmp_path / "<b>a.md", "# <script>alert(1)</script>\n\nnapkin <img src=x onerror=alert(1)> & \ue000<i>"
    )
    page = body(client, "/", q='napkin or "<script>')
    assert not [tag for tag in ("<script", "<img", "<i>", "<b>", " style=") if tag in page]
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    for odd in ("", "a\0b", "x" * 300, "   ", "'\"\\%", "\N{GHOST}"):
        body(client, "/", q=odd)
    body(client, "/?q=%FF%ED%A0%80")


def test_a_search_is_exported(client: Client, tmp_path: Path) -> None:
    add(tmp_path / "a.txt", "One red napkin")
    Document.objects.update(title="=HYPERLINK(1)")
    response = client.post(reverse("search:new_export"), {"q": "napkin"})
    export = Export.objects.get()
    page, file = (reverse(f"search:export{part}", args=[export.pk]) for part in ("", "_file"))
    assert response["Location"] == page
    assert "is pending." in body(client, page)
    assert client.get(file).status_code == 404
    run_jobs()
    assert "1 document." in body(client, page)
    head, line = client.get(file).content.decode().splitlines()
    assert head == "rank,path,title"
    assert line.endswith(",'=HYPERLINK(1)"), "a cell is no formula"
    assert as_csv("napkin")[1].splitlines()[1] == line
    client.force_login(User.objects.create_superuser("root"))
    listed = body(client, reverse("admin:search_export_changelist"))
    assert reverse("admin:django_pgqueue_job_change", args=[export.pk]) in listed
    client.post(reverse("search:new_export"), {"q": "  "})
    assert client.get(reverse("search:new_export"), {"q": "napkin"}).status_code == 405
    assert Export.objects.count() == 1


def test_the_admin_shows_documents_and_indexes_them_again(admin_client: Client, tmp_path: Path) -> None:
    row = add(tmp_path / "a.txt", "napkin")
    changelist = reverse("admin:search_document_changelist")
    assert "a.txt" in body(admin_client, changelist, q="a.txt")
    assert "napkin" in body(admin_client, reverse("admin:search_document_change", args=[row.pk]))
    admin_client.post(changelist, {"action": "index_again", "_selected_action": [row.pk]})
    row.refresh_from_db()
    assert (row.state, Job.objects.get(status="pending").args) == ("waiting", [row.pk])


# --- Runs


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make(tmp_path, "a.txt", "b/c.md", "b/d.py")
    return tmp_path


def figures(report: Report) -> tuple[int, ...]:
    return (report.new, report.changed, report.unchanged, report.removed, len(report.job_ids))


def test_runs_enqueue_a_job_for_each_file_that_is_new_or_has_changed(folder: Path) -> None:
    with transaction.atomic():
        assert figures(index_folders([folder])) == (3, 0, 0, 0, 3)
        transaction.set_rollback(True)
    assert not Document.objects.exists()
    assert figures(index_folders([folder, folder / "b"], limit=2)) == (2, 0, 0, 0, 2)
    first = index_folders([folder])
    assert figures(first) == (1, 0, 2, 0, 1)
    assert figures(index_folders([folder])) == (0, 0, 3, 0, 0)
    cancel(Job.objects.filter(pk__in=first.job_ids))
    assert figures(index_folders([folder])) == (0, 1, 2, 0, 1), "it waits in vain"
    run_jobs()
    (folder / "new.txt").write_text("new")
    (folder / "b/d.py").unlink()
    os.utime(folder / "b/c.md", ns=(0, 1))
    assert figures(index_folders([folder])) == (1, 1, 1, 1, 2)
    assert figures(index_folders([folder / "b"])) == (0, 0, 1, 0, 0), "other folders stay"
    assert Document.objects.count() == 3


def test_the_command_reports(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "picture.png").touch()
    monkeypatch.chdir(folder)
    call_command("index_folder", ".", "--suffix", "md", "--suffix", ".PY")
    first, *skipped, last = capsys.readouterr().out.splitlines()
    assert first == "2 new, 0 changed, 0 unchanged, 0 removed"
    assert sorted(skipped) == ["1 skipped: binary suffix", "1 skipped: other suffix"]
    assert last.startswith("2 jobs enqueued in ")
    with pytest.raises(CommandError, match="is not a folder"):
        call_command("index_folder", "a.txt")


@pytest.fixture
def report(folder: Path) -> Report:
    (folder / "a.txt").write_bytes(b"\0")
    return index_folders([folder])


def test_the_last_job_of_a_run_waits_for_all_and_sums_it_up(report: Report, admin_client: Client) -> None:
    run, summary = report.run, report.summary
    assert run
    assert summary
    assert set(Batch.get(run.batch_id).jobs.values_list("pk", flat=True)) == set(report.job_ids)
    run_jobs(raise_failures=False, limit=2)
    assert Job.objects.get(pk=summary.pk).status == "blocked"
    page = body(admin_client, "/progress/")
    assert '<progress max="3" value="2"' in page
    assert 'content="1"' in page
    listed = body(admin_client, reverse("admin:search_run_changelist"))
    assert "2 of 3 jobs have finished" in listed
    assert reverse("admin:django_pgqueue_jobbatch_change", args=[run.batch_id]) in listed
    run_jobs(raise_failures=False)
    expected = {"files": 3, "indexed": 2, "failed": {"not_text": 1}, "troubles": []}
    assert Run.objects.get().summary == expected == Job.objects.get(pk=summary.pk).result
    assert 'content="10"' in body(admin_client, "/progress/")
    now = progress()
    assert (now.indexed, now.failed, now.waiting, now.jobs, now.total) == (2, 1, 0, 0, 3)


COPY = """
    INSERT INTO pgqueue_job (id, shelf, status, finished_at, task_path, args, batch)
    SELECT id, shelf % 2 + 1, status, finished_at, task_path, args, batch FROM pgqueue_job WHERE id = {job}
"""


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        ("DELETE FROM search_document WHERE id = {document}", ["1 files without a document"]),
        ("DELETE FROM pgqueue_job WHERE id = {job}", ["1 documents without a job", "1 jobs are missing"]),
        (COPY, ["1 documents with two jobs", "1 jobs exist twice"]),
        ("UPDATE search_document SET state = 'waiting' WHERE id = {document}", ["1 documents do not match"]),
        ("UPDATE search_document SET vector = NULL WHERE id = {document}", ["1 documents do not match"]),
    ],
)
def test_a_hole_in_the_index_is_found(report: Report, damage: str, expected: list[str]) -> None:
    run_jobs(raise_failures=False)
    run = Run.objects.get()
    assert troubles(run) == []
    row = Document.objects.get(path__endswith="/c.md")
    job = Job.objects.get(batch_id=run.batch_id, args=[row.pk])
    fetch(damage.format(job=job.pk, document=row.pk))
    lines = troubles(run)
    assert all(any(line.startswith(words) for line in lines) for words in expected), lines
