"""How far a job is, on its page, in the list, and for the script that reads it anew."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from django_pgqueue.models import Job, JobProgress
from tests.support.factories import JobFactory

from .helpers import body, staff, url

pytestmark = pytest.mark.django_db


def reporting(done: float, total: float | None = None, note: str = "", **fields: Any) -> Job:
    job: Job = JobFactory.create(**{"running": True, "marks": 8, **fields})
    JobProgress.objects.create(job=job, done=done, total=total, note=note)
    return job


def live_part(page: str) -> str:
    found = re.search(r'<div id="pgqueue-progress.*?</div>', page, re.DOTALL)
    return found.group() if found else ""


@pytest.mark.parametrize("page", ["page", "list"])
def test_a_running_job_has_a_bar_with_words(root: Client, page: str) -> None:
    job = reporting(4500, 10_000, "<b>reading</b>", current_step="load")
    address = url("change", job.pk) if page == "page" else url("changelist")
    whole = body(root, address)
    shown = live_part(whole)
    assert '<progress class="pgqueue-bar" max="100" value="45" aria-label="Progress"' in shown
    assert shown.count("4,500 of 10,000 (45 %)") == 2  # for eyes, and for screen readers
    assert "&lt;b&gt;reading&lt;/b&gt;" in shown
    assert "step load" in shown
    assert f'data-pgqueue-source="{url("progress")}" data-pgqueue-key="{job.pk}"' in shown
    assert "django_pgqueue/live.js" in whole
    assert "style=" not in shown, "a Content-Security-Policy would refuse it"


@pytest.mark.parametrize(
    ("done", "total", "words", "value"),
    [
        (7, None, "7 done", None),
        (0, 0, "0 of 0 (100 %)", "100"),
        (12, 10, "12 of 10 (100 %)", "100"),
        (999, 1000, "999 of 1,000 (99 %)", "99"),
        (0.5, 2, "0.50 of 2 (25 %)", "25"),
    ],
)
def test_amounts(root: Client, done: float, total: float | None, words: str, value: str | None) -> None:
    shown = live_part(body(root, url("change", reporting(done, total).pk)))
    assert words in shown
    assert re.findall(r'value="(\d+)"', shown) == ([] if value is None else [value])


def test_a_job_that_waits_shows_how_far_it_is_and_a_failed_one_how_far_it_came(root: Client) -> None:
    waiting = reporting(1, 2, running=False)
    page = body(root, url("change", waiting.pk))
    assert "1 of 2 (50 %)" in page
    assert live_part(page) == ""
    error = {"class": "builtins.ValueError", "message": "no", "step": "parse"}
    failed = JobFactory.create(
        failed=True, errors=[{**error, "progress": {"done": 3.0, "total": 4.0, "note": "page 3"}}]
    )
    page = body(root, url("change", failed.pk))
    assert 'value="75"' in page
    assert "<dt>step</dt><dd>parse</dd>" in page
    assert "<dd>3 of 4 (75 %) page 3</dd>" in page


def test_jobs_without_progress_have_none(root: Client) -> None:
    page = body(root, url("change", JobFactory.create(done=True).pk))
    assert "pgqueue-bar" not in page
    assert "field-progress" not in page
    assert live_part(body(root, url("change", JobFactory.create(running=True).pk))).endswith("></div>")


def test_the_list_reads_the_progress_with_the_jobs(root: Client) -> None:
    reporting(1, 2)
    body(root, url("changelist"))
    with CaptureQueriesContext(connection) as one:
        body(root, url("changelist"))
    for _ in range(5):
        reporting(1, 2)
    with CaptureQueriesContext(connection) as many:
        assert body(root, url("changelist")).count("1 of 2 (50 %)") == 12
    assert len(many) == len(one)


def test_the_script_reads_running_jobs_in_one_query(root: Client) -> None:
    one, other = reporting(1, 2), reporting(3, None)
    over, silent = JobFactory.create(done=True), JobFactory.create(running=True)
    keys = ",".join(map(str, [one.pk, other.pk, over.pk, silent.pk, "x", "²", 10**30]))
    with CaptureQueriesContext(connection) as queries:
        answer = root.get(url("progress"), {"keys": keys})
    assert sum("pgqueue_job" in query["sql"] for query in queries) == 1
    assert "no-store" in answer.headers["Cache-Control"]
    parts = re.findall(
        r'<div id="pgqueue-progress-(\d+)"( data-pgqueue-source)?.*?</div>', answer.content.decode()
    )
    assert parts == [
        (str(one.pk), " data-pgqueue-source"),
        (str(other.pk), " data-pgqueue-source"),
        (str(over.pk), ""),
        (str(silent.pk), " data-pgqueue-source"),
    ]
    told = answer.content.decode()
    assert "1 of 2 (50 %)" in told
    assert "3 done" in told


def test_the_script_needs_the_permission_to_view_jobs() -> None:
    job = reporting(1, 2)
    assert staff().get(url("progress"), {"keys": job.pk}).status_code == 403
    assert staff("view_job").get(url("progress"), {"keys": job.pk}).content
    assert Client().get(url("progress"), {"keys": job.pk}).status_code == 302
