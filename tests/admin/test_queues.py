"""The list of queues, and their settings."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from django_pgqueue import pause, set_limit
from django_pgqueue.admin import QueueAdmin
from django_pgqueue.admin import queues as queues_module
from django_pgqueue.models import Queue
from django_pgqueue.monitoring import queues
from django_pgqueue.postgres.timeout import TimeLimitReached
from tests.support.factories import JobFactory, JobStatFactory, QueueFactory, WorkerFactory

from .helpers import STATES, body, staff, url

pytestmark = pytest.mark.django_db


def test_settings_of_a_queue(root: Client) -> None:
    given = {
        "name": "mail",
        "retention": "90 00:00:00",
        "failed_retention": "",
        "backoff_base": "1",
        "backoff_ceiling": "",
    }
    assert root.post(url("add", model="queue"), given).status_code == 302
    queue = Queue.objects.get(pk="mail")
    assert (queue.retention, queue.failed_retention, queue.backoff_base) == (timedelta(days=90), None, 1)
    changed = {**given, "name": "renamed", "failed_retention": "0"}
    assert root.post(url("change", "mail", model="queue"), changed).status_code == 302
    assert Queue.objects.get().pk == "mail", "jobs bear the name: it stays"
    assert Queue.objects.get().failed_retention == timedelta(0)
    assert "mail" in body(root, url("changelist", model="queue"))
    assert root.post(url("delete", "mail", model="queue"), {"post": "yes"}).status_code == 302
    assert not Queue.objects.exists()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"name": "a b"}, "Use only letters"),
        ({"name": "taken"}, "A queue with this name already exists."),
        ({"retention": "-1 00:00:00"}, "Enter zero or more."),
        (
            {"backoff_base": "9", "backoff_ceiling": "3"},
            "The longest wait must not be shorter than the first wait.",
        ),
        ({"backoff_base": "-1"}, "greater than or equal to 0"),
    ],
)
def test_settings_that_cannot_be(root: Client, given: dict[str, str], said: str) -> None:
    QueueFactory.create(name="taken")
    response = root.post(url("add", model="queue"), {"name": "mail", **given})
    assert response.status_code == 200
    assert said in response.content.decode()
    assert Queue.objects.count() == 1


def test_the_list_shows_every_queue_of_the_overview(root: Client) -> None:
    JobFactory.create(queue_name="waits")
    JobFactory.create(queue_name="runs", running=True)
    JobFactory.create(queue_name="blocked", **STATES["blocked"])
    JobFactory.create(queue_name="failed", failed=True)
    JobStatFactory.create(queue_name="ran")
    QueueFactory.create(name="settled", retention=timedelta(0), backoff_base=2)
    QueueFactory.create(name="runs", failed_retention=timedelta(days=90))
    names = ["blocked", "failed", "ran", "runs", "settled", "waits"]
    on_overview = {row["name"] for row in root.get(url("overview")).context["queues"]}
    assert {"ran", "runs", "settled", "waits"} <= on_overview
    assert listed_names(root) == names
    page = body(root, url("changelist", model="queue"))
    assert "6 queues" in page
    assert "done jobs not kept, first wait 2.0 s" in page
    assert "failed jobs kept for 90 d" in page
    assert f'href="{url("change", "runs", model="queue")}"' in page
    assert f'href="{url("change", "waits", model="queue")}"' in page, "it has no settings yet"
    assert page.count('name="_selected_action"') == 2, "where there is a row"
    assert f'href="{url("changelist")}?queue=runs&amp;status=running"' in page.replace("&s", "&amp;s")


def listed_names(client: Client, **query: Any) -> list[str]:
    response = client.get(url("changelist", model="queue"), query)
    assert response.status_code == 200
    return [queue.pk for queue in response.context["cl"].result_list]


def test_the_form_that_gives_a_queue_settings_knows_its_name(root: Client) -> None:
    assert 'value="waits"' in body(root, url("add", model="queue"), name="waits")


def test_a_viewer_sees_all_queues_and_gets_no_links_that_are_refused() -> None:
    JobFactory.create(queue_name="waits", running=True)
    QueueFactory.create(name="settled")
    viewer = staff("view_queue")
    assert listed_names(viewer) == ["settled", "waits"]
    page = body(viewer, url("changelist", model="queue"))
    assert "/queue/add/" not in page
    assert "/job/" not in page
    assert viewer.get(url("change", "settled", model="queue")).status_code == 200


def test_search_and_pages_of_the_queues(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("mail", "mail-bulk", "slow"):
        JobFactory.create(queue_name=name)
    QueueFactory.create(name="Mail-late")
    assert listed_names(root, q="MAIL") == ["Mail-late", "mail", "mail-bulk"]
    assert listed_names(root, q="mail bulk") == ["mail-bulk"]
    assert listed_names(root, q="none") == []
    monkeypatch.setattr(QueueAdmin, "list_per_page", 3)
    assert listed_names(root) == ["Mail-late", "mail", "mail-bulk"]
    assert listed_names(root, p=2) == ["slow"]
    assert len(listed_names(root, all="")) == 4
    assert root.get(url("changelist", model="queue"), {"p": 9}).status_code == 302


def test_settings_are_deleted_from_the_list(root: Client) -> None:
    JobFactory.create(queue_name="mail")
    QueueFactory.create(name="mail")
    data = {"action": "delete_selected", "_selected_action": ["mail"], "index": 0, "post": "yes"}
    assert root.post(url("changelist", model="queue"), data).status_code == 302
    assert not Queue.objects.exists()
    assert listed_names(root) == ["mail"]


def test_the_number_of_statements_does_not_depend_on_the_number_of_queues(root: Client) -> None:
    def statements() -> int:
        with CaptureQueriesContext(connection) as captured:
            listed_names(root)
        return sum("pgqueue_" in entry["sql"] for entry in captured)

    JobFactory.create()
    WorkerFactory.create()
    few = statements()
    for n in range(10):
        JobFactory.create(queue_name=f"q{n}")
        QueueFactory.create(name=f"q{n}")
        WorkerFactory.create(queues=[f"q{n}"])
    assert statements() == few <= 12


def tiles(page: str) -> dict[str, str]:
    """Return the terms of the page and what is said about them, without markup."""
    found = re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", page, re.DOTALL)
    return {label: " ".join(re.sub(r"<[^>]+>", "", text).split()) for label, text in found}


def test_the_page_of_a_queue(root: Client) -> None:
    worker = WorkerFactory.create(host="app1", queues=["mail"], slots=4)
    WorkerFactory.create(host="app2", queues=["other"])
    JobFactory.create(queue_name="mail", run_after=timezone.now() - timedelta(minutes=5))
    JobFactory.create(queue_name="mail", scheduled=True)
    JobFactory.create(queue_name="mail", running=True, worker=worker.pk)
    JobFactory.create(queue_name="mail", running=True, worker=999)
    JobFactory.create_batch(2, queue_name="mail", retrying=True)
    JobFactory.create(queue_name="mail", failed=True)
    JobFactory.create(queue_name="other")
    JobStatFactory.create(queue_name="mail", task_path="shop.<b>.a", done=3, failed=0)
    JobStatFactory.create(queue_name="mail", task_path="shop.tasks.b", done=1, failed=0)
    pause(queue="mail", author="ann", reason="bounces")
    set_limit(queue="mail", concurrency=7)
    page = body(root, url("change", "mail", model="queue"))
    said = tiles(page)
    now = ("Ready", "Scheduled", "Retrying", "Running of slots", "Lost")
    assert [said[name] for name in now] == ["1", "1", "2", "2 of 4", "1"]
    assert re.fullmatch(r"< 0\.1 jobs/min|0\.1 jobs/min", said["Rate"])
    assert said["Oldest due for"] == "5 min"
    assert said["Failed in 24 hours"] == "1"
    assert said["Paused"] == "paused by ann: bounces"
    assert said["Limit"] == "queue:mail: at most 7 at once"
    assert said["Done"] == "4"
    assert f'<a href="{url("change", worker.pk, model="worker")}">app1:' in page
    assert "app2:" not in page
    assert ">75 %</td>" in page
    assert f'href="{url("task", "shop.tasks.b", model="jobstat")}"' in page
    assert "shop.<b>" not in page
    assert page.count("data-pgqueue-chart") == 3
    assert f'href="{url("changelist")}?queue=mail&amp;status=failed&amp;finished=day"' in page


def test_a_queue_without_settings_has_a_page_and_gets_settings_there(root: Client) -> None:
    JobFactory.create(queue_name="waits")
    address = url("change", "waits", model="queue")
    assert "No worker serves this queue." in body(root, address)
    assert "/delete/" not in body(root, address)
    assert root.get(url("delete", "waits", model="queue")).status_code == 403
    given = {"retention": "", "failed_retention": "", "backoff_base": "3", "backoff_ceiling": ""}
    assert root.post(address, given).status_code == 302
    assert Queue.objects.get().backoff_base == 3
    assert root.get(url("change", "nobody", model="queue")).status_code == 302, "no such queue"
    WorkerFactory.create(queues=["served"])
    pause(queue="paused")
    for name in ("served", "paused"):
        assert "Ready" in body(root, url("change", name, model="queue"))


def test_who_may_view_but_not_add_gets_no_form_for_the_first_settings() -> None:
    JobFactory.create(queue_name="waits")
    JobStatFactory.create(queue_name="waits", task_path="shop.tasks.b")
    WorkerFactory.create()
    address = url("change", "waits", model="queue")
    viewer = staff("view_queue", "change_queue")
    page = body(viewer, address)
    assert 'name="_save"' not in page
    assert viewer.post(address, {"backoff_base": "3"}).status_code == 403
    assert not Queue.objects.exists()
    for hidden in ("/job/", "/worker/", "/jobstat/", "/pause/add/"):
        assert hidden not in page.split('id="content"')[1]


def test_figures_that_cannot_be_read_in_time_are_left_out(
    root: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any, **kwargs: Any) -> Any:
        raise TimeLimitReached

    QueueFactory.create(name="mail")
    monkeypatch.setattr(queues, "depths", fail)
    assert "could not be read in time" in body(root, url("changelist", model="queue"))
    page = body(root, url("change", "mail", model="queue"))
    assert tiles(page)["Depth"] == "could not be read in time"
    assert "data-pgqueue-chart" in page
    monkeypatch.setattr(queues_module, "series", fail)
    assert "so the charts are missing" in body(root, url("change", "mail", model="queue"))


def test_counts_beyond_the_limit_are_rounded_estimates() -> None:
    assert [queues.capped(count) for count in (9_999, 10_000, 1_234_567)] == [
        "9,999", "\N{ALMOST EQUAL TO} 10,000", "\N{ALMOST EQUAL TO} 1,200,000",
    ]  # fmt: skip
