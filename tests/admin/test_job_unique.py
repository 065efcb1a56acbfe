"""The unique key of a job on its page, in the search, and in what a retry says."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from django_pgqueue.models import UniqueWindow
from tests.support.factories import JobFactory

from .helpers import act, ask, body, listed, post, staff, url

pytestmark = pytest.mark.django_db

KEY = {"unique_key": "doc-7", "unique_scope": "waiting"}
LIVE = {"unique_key": "doc-7", "unique_scope": "live"}


def page(client: Client, job: Any) -> str:
    return body(client, url("change", job.pk)).replace("<wbr>", "")


def test_the_page_shows_the_key_and_how_long_it_holds(root: Client) -> None:
    shown = page(root, JobFactory.create(**KEY))
    assert ">doc-7</code>" in shown
    assert "no other job with this key while this one waits" in shown
    assert "has the key now" not in shown
    assert "no other job with this key until this one has finished" in page(root, JobFactory.create(**LIVE))


def test_a_job_without_a_key_shows_nothing_of_it(root: Client) -> None:
    assert "no other job with this key" not in page(root, JobFactory.create())


@pytest.mark.parametrize("state", ["running", "done", "cancelled"])
def test_the_page_links_the_job_that_has_the_key_now(root: Client, state: str) -> None:
    job = JobFactory.create(**KEY, **{state: True})
    assert "has the key now" not in page(root, job)
    twin = JobFactory.create(**KEY)
    assert f'<a href="{url("change", twin.pk)}">job {twin.pk}</a> has the key now' in page(root, job)
    assert "has the key now" not in page(root, twin)


def test_the_page_shows_the_window_until_it_ends(root: Client) -> None:
    job = JobFactory.create(**KEY)
    window = UniqueWindow.objects.create(
        unique_key="doc-7", job_id=job.pk, until=timezone.now() + timedelta(hours=1)
    )
    assert "by its window" in page(root, job)
    window.until = timezone.now() - timedelta(seconds=1)
    window.save()
    assert "by its window" not in page(root, job)


def test_a_key_is_escaped(root: Client) -> None:
    shown = page(root, JobFactory.create(unique_key="<b>7</b>", unique_scope="live"))
    assert "&lt;b&gt;7" in shown
    assert "<b>7" not in shown


def test_the_search_finds_a_key(root: Client) -> None:
    job = JobFactory.create(**KEY, done=True)
    JobFactory.create(unique_key="doc-8", unique_scope="live")
    assert listed(root, q="DOC-7") == [job.pk]


def test_a_retry_that_meets_a_twin_says_why_nothing_changed() -> None:
    client = staff("view_job", "retry_job")
    job = JobFactory.create(**LIVE, failed=True)
    JobFactory.create(**LIVE)
    assert act(client, "retry_jobs", job) == (
        "No job changed: all of them changed in the meantime, or other jobs have their unique keys.",
        "warning",
    )
    message, level = post(client, url("retry", job.pk))
    assert message.endswith("cannot be retried, nor a job whose unique key another job has.")
    assert level == "warning"
    job.refresh_from_db()
    assert job.status == "failed"


def test_a_retry_of_many_counts_only_those_that_run(root: Client) -> None:
    JobFactory.create(**LIVE)
    jobs = [JobFactory.create(**LIVE, failed=True), JobFactory.create(failed=True)]
    message, _ = ask(root, "retry_jobs", *jobs).confirm(root)
    assert message == (
        "1 job runs again. "
        "1 other was left alone: it changed in the meantime, or another job has its unique key."
    )
    third = JobFactory.create(**LIVE, failed=True)
    message, _ = ask(root, "retry_jobs", third, jobs[0]).confirm(root)
    assert message == (
        "No job changed: all of them changed in the meantime, or other jobs have their unique keys."
    )


def test_the_list_tells_that_a_twin_took_its_place(root: Client) -> None:
    reason = "job 5 with the same unique key waits in its place"
    JobFactory.create(**KEY, cancelled=True, waiting_reason=reason)
    assert reason in body(root, url("changelist")).replace("<wbr>", "")
