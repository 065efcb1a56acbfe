"""The contents of the pages of jobs, workers and statistics."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest
from django.test import Client
from django.utils import timezone

from django_pgqueue import formatting
from django_pgqueue.admin import display
from tests.support.factories import ERROR, JobFactory, QueueFactory, WorkerFactory

from .helpers import STATES, body, listed, url

pytestmark = pytest.mark.django_db


def test_a_page_for_each_state(root: Client) -> None:
    jobs = {state: JobFactory.create(**options) for state, options in STATES.items()}
    assert listed(root) == sorted((job.pk for job in jobs.values()), reverse=True)
    for state, job in jobs.items():
        page = body(root, url("change", job.pk))
        assert f"pgqueue-status pgqueue-{state}" in page
        assert "tests.app.tasks.add" in page
        assert ">[1, 2]</code>" in page


def test_the_list_tells_why_a_job_waits_or_failed(root: Client) -> None:
    JobFactory.create(**STATES["blocked"])
    JobFactory.create(failed=True)
    page = body(root, url("changelist"))
    assert "at most 2 at once" in page
    assert '<span title="no answer from the gateway">Gateway<wbr>Down</span>' in page


def test_errors_are_readable_the_last_one_first_and_escaped(root: Client) -> None:
    first = {**ERROR, "message": "first"}
    last = {**ERROR, "attempt": 2, "message": "x" * 300, "traceback": "<script>alert(1)</script>"}
    job = JobFactory.create(failed=True, attempts=2, errors=[first, last])
    page = body(root, url("change", job.pk))
    assert page.index("attempt 2") < page.index("attempt 1")
    assert "&lt;script&gt;alert(1)&lt;/script&gt;</pre>" in page
    assert "<script>alert" not in page
    assert f"{'x' * 300}</pre>" in page
    assert ">2026-11-21 00:00:01</time>" in page


def test_the_page_of_a_job_tells_how_long_it_ran(root: Client) -> None:
    ran, never_ran = JobFactory.create(done=True, duration=2.5), JobFactory.create(cancelled=True)
    assert "(ran 2.500 s)" in body(root, url("change", ran.pk))
    assert "(ran " not in body(root, url("change", never_ran.pk))


@pytest.mark.parametrize(
    ("length", "text"),
    [
        (None, ""),
        (0.0, "0.000 s"),
        (0.01234, "0.012 s"),
        (0.0426, "0.043 s"),
        (2.9999, "3.000 s"),
        (59.9, "59.900 s"),
        (59.9996, "1 min"),
        (60.0, "1 min"),
        (5400.0, "1 h 30 min"),
    ],
)
def test_how_long_a_job_ran_is_exact_below_a_minute(length: float | None, text: str) -> None:
    assert display.seconds(length) == text


def test_all_times_are_shown_in_one_way(root: Client) -> None:
    time = datetime(2026, 11, 21, 12, 30, tzinfo=UTC)
    columns = [
        "run_after",
        "expires_at",
        "started_at",
        "last_attempted_at",
        "deadline",
        "cancel_requested_at",
    ]
    enqueued = time - timedelta(hours=1)
    times = dict.fromkeys(columns, time)
    job = JobFactory.create(running=True, attempts=2, enqueued_at=enqueued, **times)
    page = body(root, url("change", job.pk))
    shown = re.findall(r'datetime="2026-11-21T12:30:00\+00:00"([^>]*)>([^<]*)</time>', page)
    assert len(shown) == len(columns) + 1
    full = "2026-11-21 12:30:00"  # the date is told once, and then with the mouse
    assert {text for _title, text in shown} == {full, "12:30:00"}
    assert all('title="2026-11-21T12:30:00.000+00:00 UTC"' in title for title, _text in shown)


def test_an_error_with_an_odd_time_is_shown_as_it_is(root: Client) -> None:
    job = JobFactory.create(failed=True, errors=[{"class": "E", "started_at": "2026-99-99T00:00:00+00:00"}])
    assert "<dd>2026-99-99T00:00:00+00:00</dd>" in body(root, url("change", job.pk))


def test_markup_in_arguments_results_and_names_is_escaped(root: Client) -> None:
    bad = "</pre><script>alert(1)</script>"
    job = JobFactory.create(
        done=True, args=[bad], kwargs={bad: bad}, metadata={"a": bad}, result=bad, waiting_reason=bad
    )
    WorkerFactory.create(id=7, host=bad)
    QueueFactory.create(name="default")
    for address in (
        url("change", job.pk),
        url("changelist"),
        url("overview"),
        url("changelist", model="worker"),
    ):
        assert "<script>alert" not in body(root, address)


def test_a_long_argument_is_cut(root: Client) -> None:
    job = JobFactory.create(args=["x" * 30_000])
    page = body(root, url("change", job.pk))
    assert "… and 10,008 more characters" in page
    assert len(page) < 60_000


def test_queue_and_worker_are_linked_while_they_are_there(root: Client) -> None:
    job = JobFactory.create(running=True)
    assert "/worker/7/change/" not in body(root, url("change", job.pk))
    WorkerFactory.create(id=7)
    QueueFactory.create(name="default")
    page = body(root, url("change", job.pk))
    assert url("change", 7, model="worker") in page
    assert url("change", "default", model="queue") in page


@pytest.mark.parametrize(
    ("length", "text"),
    [
        (None, ""),
        (-5, "0 s"),
        (59.9, "59 s"),
        (60, "1 min"),
        (3600, "1 h"),
        (5399, "1 h 29 min"),
        (604_800, "7 d"),
        (90_061, "1 d 1 h"),
    ],
)
def test_periods_are_short(length: float | None, text: str) -> None:
    assert formatting.period(None if length is None else timedelta(seconds=length)) == text


@pytest.mark.parametrize(
    ("length", "text"),
    [
        (0, "0 ms"),
        (0.00096, "1.0 ms"),
        (0.00996, "10 ms"),
        (0.5126, "513 ms"),
        (0.9996, "1.0 s"),
        (9.94, "9.9 s"),
        (58.98, "59 s"),
        (59.6, "1 min"),
        (7500, "2 h 5 min"),
    ],
)
def test_a_span_has_the_unit_that_suits_it(length: float, text: str) -> None:
    assert formatting.span(length) == text


def test_workers(root: Client) -> None:
    WorkerFactory.create(id=7, queues=["mail", "slow"], host="app-7", slots=4)
    WorkerFactory.create(id=8, state="draining", heartbeat_at=timezone.now() - timedelta(minutes=5))
    JobFactory.create_batch(2, running=True)
    page = body(root, url("changelist", model="worker"))
    assert "mail, slow" in page
    assert "2 of 4" in page
    assert ">5 min ago</time></strong>" in page
    assert page.count("pgqueue-dead") == 1, "whatever its row says"
    assert "app-7" in body(root, url("change", 7, model="worker"))
