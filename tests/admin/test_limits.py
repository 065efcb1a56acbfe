"""Limits, and those of a job on its page. What a form stores and refuses: `tests.limits.test_numbers`."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.utils import quote
from django.db import connection
from django.test import Client, override_settings
from django.urls import reverse

from django_pgqueue import RateLimit, enqueue, enqueue_many, set_limit
from django_pgqueue.models import Job, Limit
from tests.app import limit_tasks as tasks
from tests.app.tasks import noop

from .helpers import body, listed, staff, url

pytestmark = pytest.mark.django_db


def start(job: int) -> None:
    """Make it run, as a claim does."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE pgqueue_job SET status = 'running', worker = 1, lease = 1 WHERE id = %s", [job]
        )


@pytest.mark.parametrize(
    ("concurrency", "rate", "change", "numbers"),
    [
        ("3", "NULL", {"concurrency": "7"}, "3"),
        ("NULL", "9", {"rate": "3", "per": "0:00:10"}, "9 a minute, burst 2"),
    ],
)
def test_a_limit_that_the_code_declares_says_so_and_cannot_be_deleted(
    root: Client, concurrency: str, rate: str, change: dict[str, str], numbers: str
) -> None:
    period, burst = ("NULL", "NULL") if rate == "NULL" else ("1 minute", "2")
    columns = f"'{{crm}}', '{{{concurrency}}}', '{{wait}}', '{{{rate}}}', '{{{period}}}', '{{{burst}}}'"
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT _pgqueue_declare_limits({columns})")
    address, limits = url("change", "crm", model="limit"), url("changelist", model="limit")
    assert f"as the code declares ({numbers})." in body(root, address)
    assert "declared in code" in body(root, limits)
    assert root.post(address, change).status_code == 302
    assert f"set by hand; the code declares {numbers}" in body(root, limits)
    assert root.post(url("delete", "crm", model="limit"), {"post": "yes"}).status_code == 403


def test_a_limit_that_the_code_no_longer_declares_says_so_and_can_be_deleted(root: Client) -> None:
    Limit.objects.create(name="removed", concurrency=3)
    words = "no longer declared in code; it can be deleted"
    assert words in body(root, url("changelist", model="limit"))
    page = body(root, url("change", "removed", model="limit"))
    assert words in page
    assert url("delete", "removed", model="limit") in page
    assert root.post(url("delete", "removed", model="limit"), {"post": "yes"}).status_code == 302
    assert not Limit.objects.exists()


def test_the_list_shows_how_many_jobs_run_under_each_limit(root: Client) -> None:
    set_limit(name="k", concurrency=5)
    set_limit(queue="default", concurrency=5)
    set_limit(queue="mail", concurrency=5)
    set_limit(everything=True, concurrency=5)
    jobs = enqueue_many(tasks.two.using(limit_key=key).bind("a") for key in ("1", "2")).ids
    Job.objects.filter(pk=jobs[0]).update(limit_key="k/1")
    Job.objects.filter(pk=jobs[1]).update(limit_key="k2/1", queue_name="mail")
    for job in jobs:
        start(job)
    response = root.get(url("changelist", model="limit"))
    assert {limit.pk: limit.running_now for limit in response.context["cl"].result_list} == {
        "k": 1, "queue:default": 1, "queue:mail": 1, "*": 2,
    }  # fmt: skip


def test_who_may_see_and_change_limits() -> None:
    set_limit(name="k", concurrency=5)
    assert staff().get(url("changelist", model="limit")).status_code == 403
    viewer = staff("view_limit")
    assert viewer.get(url("change", "k", model="limit")).status_code == 200
    assert viewer.post(url("change", "k", model="limit"), {"concurrency": "1"}).status_code == 403
    editor = staff("view_limit", "change_limit")
    assert (
        editor.post(url("change", "k", model="limit"), {"concurrency": "1", "on_full": "wait"}).status_code
        == 302
    )
    assert editor.get(url("add", model="limit")).status_code == 403


def lines(client: Client, job: Any) -> str:
    return body(client, url("change", getattr(job, "pk", job)))


def test_the_page_of_a_job_shows_its_place_in_line_and_who_holds_the_slot(root: Client) -> None:
    first, second, third = enqueue_many(tasks.ship.bind(7) for _ in range(3)).ids
    start(first)
    set_limit(queue="default", concurrency=9)
    page = lines(root, third)
    key = f"{url('changelist')}?q=key%3Atests.app.limit_tasks.ship%2F7"
    assert f'1 of 1 run, <a href="{key}">1 before it</a>' in page
    assert listed(root, q="key:tests.app.limit_tasks.ship/7") == [third, second, first]
    assert f'held by <a href="{url("change", first)}">{first}</a>' in page
    assert ">queue default</a>, 1 of 9 run" in page
    settings = url("change", quote("queue:default"), model="limit")
    assert f'href="{settings}"' in page
    assert "next in the wait queue" in lines(root, second)
    assert "held by" not in lines(root, first)
    viewer = lines(staff("view_job"), third)
    assert f'held by <a href="{url("change", first)}">' in viewer
    assert settings not in viewer


def test_the_page_of_a_job_without_limits_does_not_mention_them(root: Client) -> None:
    assert "field-limits" not in lines(root, enqueue(noop))
    job = enqueue(tasks.ship, 7)
    assert "0 of 1 run, next in the wait queue" in lines(root, job)
    Job.objects.filter(pk=job.pk).cancel()
    assert "ship/7" in lines(root, job).replace("<wbr>", "")


def test_the_page_of_a_job_shows_when_its_rate_lets_the_next_one_start(root: Client) -> None:
    set_limit(name="k", rate_limit=RateLimit(1, per=timedelta(hours=1)))
    job = enqueue(tasks.sync.using(limit_key="x"), "a")
    Job.objects.filter(pk=job.pk).update(limit_key="k/x")
    assert "waits for its rate limit" not in lines(root, job)
    with connection.cursor() as cursor:
        cursor.execute("SELECT pgqueue_take_rate('k', 'x')")
    page = lines(root, job)
    assert "waits for its rate limit, next start at <time " in page
    assert "next in the wait queue" in page
    assert "run, next" not in page


@override_settings(ROOT_URLCONF="tests.admin.sites")
@pytest.mark.django_db(databases=["default", "other"])
def test_another_site_has_the_limits_of_its_database(root: Client) -> None:
    set_limit(name="k", concurrency=5)
    given = {"name": "k", "concurrency": "3", "on_full": "wait"}
    assert root.post(reverse("ops:django_pgqueue_limit_add"), given).status_code == 302
    assert [limit.concurrency for limit in Limit.objects.using("other").all()] == [3]
    assert (
        root.post(reverse("ops:django_pgqueue_limit_delete", args=["k"]), {"post": "yes"}).status_code == 302
    )
    assert not Limit.objects.using("other").exists()
    assert Limit.objects.get().concurrency == 5
