"""The unique key of a job on its page and in the list, and in what a retry says."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from django_pgqueue.models import UniqueWindow
from tests.support.factories import JobFactory

from .helpers import act, ask, body, post, staff, url

pytestmark = pytest.mark.django_db

KEY = {"unique_key": "doc-7", "unique_scope": "waiting"}
LIVE = {"unique_key": "doc-7", "unique_scope": "live"}


HOUR = timedelta(hours=1)

WAITS = "no other job with this key while this one waits"
RUNS = "no other job with this key until this one has finished"
TAKEN = "has the key now"
WINDOW = "by its window"


@pytest.mark.parametrize(
    ("job", "twin", "window", "shown"),
    [
        ({}, False, None, ()),
        (KEY, False, None, (WAITS,)),
        (LIVE, False, None, (RUNS,)),
        (KEY, False, HOUR, (WAITS, WINDOW)),
        (KEY, False, -HOUR, (WAITS,)),
        *((KEY | {state: True}, False, None, (WAITS,)) for state in ("running", "done", "cancelled")),
        *((KEY | {state: True}, True, None, (WAITS, TAKEN)) for state in ("running", "done", "cancelled")),
    ],
)
def test_the_page_shows_the_key_how_long_it_holds_and_who_has_it(
    root: Client, job: dict[str, Any], twin: bool, window: timedelta | None, shown: tuple[str, ...]
) -> None:
    pages = [JobFactory.create(**job)]
    if twin:
        pages.append(JobFactory.create(**KEY))
    if window:
        UniqueWindow.objects.create(unique_key="doc-7", job_id=pages[0].pk, until=timezone.now() + window)
    first, *other = [body(root, url("change", row.pk)).replace("<wbr>", "") for row in pages]
    assert (">doc-7</code>" in first) == bool(job)
    assert [text for text in (WAITS, RUNS, TAKEN, WINDOW) if text in first] == list(shown)
    if twin:
        assert f'<a href="{url("change", pages[1].pk)}">job {pages[1].pk}</a> has the key now' in first
        assert TAKEN not in other[0]


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
