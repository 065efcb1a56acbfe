"""The overview of the queues."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from django_pgqueue.admin.depth import depth
from tests.support.factories import JobFactory, JobStatFactory, QueueFactory, WorkerFactory

from .helpers import STATES, body, staff, url

pytestmark = pytest.mark.django_db


def test_depth() -> None:
    long_ago = timezone.now() - timedelta(minutes=10)
    JobFactory.create(queue_name="mail", run_after=long_ago)
    JobFactory.create(queue_name="mail", scheduled=True)
    JobFactory.create(queue_name="mail", retrying=True)
    JobFactory.create(queue_name="mail", retrying=True, run_after=long_ago - timedelta(minutes=10))
    JobFactory.create(queue_name="mail", running=True)
    JobFactory.create(queue_name="mail", **STATES["blocked"])
    JobStatFactory.create(queue_name="mail", done=5, retried=2)
    JobStatFactory.create(queue_name="mail", done=7, retried=3, minute=timezone.now() - timedelta(hours=3))
    JobFactory.create(queue_name="failures", failed=True)
    JobFactory.create(queue_name="failures", failed=True, finished_at=timezone.now() - timedelta(hours=3))
    JobFactory.create(queue_name="failures", failed=True, finished_at=timezone.now() - timedelta(days=3))
    JobFactory.create(queue_name="failures", done=True, shelf=9)
    JobFactory.create(queue_name="more failures", failed=True)
    QueueFactory.create(name="unused")

    by_name = {queue.name: queue for queue in depth("default")}
    assert list(by_name) == ["failures", "mail", "more failures", "unused"]
    mail = by_name["mail"]
    assert (mail.pending, mail.retry, mail.running, mail.blocked, mail.ready) == (2, 2, 1, 1, 2)
    assert mail.oldest is not None
    assert timedelta(minutes=20) <= mail.oldest < timedelta(minutes=21)
    assert (mail.done_hour, mail.retried_hour, mail.retried_day) == (5, 2, 5)
    assert (by_name["failures"].failed_hour, by_name["failures"].failed_day) == (1, 2)
    assert by_name["more failures"].failed_hour == 1
    assert by_name["unused"].oldest is None


def test_the_overview_and_the_ways_to_it(root: Client) -> None:
    JobFactory.create(queue_name="mail & more", failed=True)
    WorkerFactory.create(host="app-9", heartbeat_at=timezone.now() - timedelta(hours=1))
    page = body(root, url("overview"))
    assert "?queue=mail+%26+more&amp;status=failed&amp;finished=hour" in page.replace(
        "&status", "&amp;status"
    ).replace("&finished", "&amp;finished")
    assert "app-9" in page
    assert "1 h ago" in page
    for address in (url("changelist"), url("changelist", model="queue"), "/admin/django_pgqueue/"):
        assert f'href="{url("overview")}"' in body(root, address)
    for address in (url("changelist", model="queue"), "/admin/django_pgqueue/"):
        assert url("overview") not in body(staff("view_queue"), address)


def test_the_overview_and_the_list_of_queues_show_counts_in_one_way(root: Client) -> None:
    JobStatFactory.create(done=12_345)
    JobFactory.create(failed=True)
    page = body(root, url("overview"))
    assert ">12,345</a>" in page
    assert "<title>Overview of the queues |" in page
    assert re.search(r'<a class="pgqueue-alarm" href="[^"]*finished=day">1</a>', page)
    queues = body(root, url("changelist", model="queue"))
    assert re.search(r'<strong class="pgqueue-alarm"><a href="[^"]*finished=day">1</a></strong>', queues)


def test_the_overview_of_nothing(root: Client) -> None:
    page = body(root, url("overview"))
    assert "There are no queues yet" in page
    assert "manage.py runqueueworker" in page


def test_the_overview_shows_no_more_workers_than_fit(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("django_pgqueue.admin.overview.MOST_WORKERS", 2)
    WorkerFactory.create_batch(3)
    page = body(root, url("overview"))
    assert page.count(">app-1:") == 2
    assert "1 more worker is not shown here." in page


def test_failures_are_counted_up_to_a_limit(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("django_pgqueue.admin.depth.MOST_FAILURES", 2)
    monkeypatch.setattr("django_pgqueue.admin.overview.MOST_FAILURES", 2)
    JobFactory.create_batch(5, failed=True)
    assert ">2+</a>" in body(root, url("overview"))


def test_pages_need_no_inline_script_or_style(root: Client) -> None:
    job = JobFactory.create(failed=True)
    for address in (url("overview"), url("change", job.pk), url("changelist")):
        page = body(root, address)
        assert "<style" not in page
        assert " style=" not in page
        assert not re.search(r"<script(?![^>]* src=)(?![^>]*application/json)", page)
        assert not re.search(r" on\w+=", page)
        assert "django_pgqueue/admin.css" in page
