"""The list of queues, and their settings."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from django_pgqueue.admin import QueueAdmin
from django_pgqueue.models import Queue
from tests.support.factories import JobFactory, JobStatFactory, QueueFactory, WorkerFactory

from .helpers import STATES, body, staff, url

pytestmark = pytest.mark.django_db


def test_settings_of_a_queue(root: Client) -> None:
    given = {
        "name": "mail",
        "keep_done": "90 00:00:00",
        "keep_failed": "",
        "backoff_base": "1",
        "backoff_ceiling": "",
    }
    assert root.post(url("add", model="queue"), given).status_code == 302
    queue = Queue.objects.get(pk="mail")
    assert (queue.keep_done, queue.keep_failed, queue.backoff_base) == (timedelta(days=90), None, 1)
    changed = {**given, "name": "renamed", "keep_failed": "0"}
    assert root.post(url("change", "mail", model="queue"), changed).status_code == 302
    assert Queue.objects.get().pk == "mail", "jobs bear the name: it stays"
    assert Queue.objects.get().keep_failed == timedelta(0)
    assert "mail" in body(root, url("changelist", model="queue"))
    assert root.post(url("delete", "mail", model="queue"), {"post": "yes"}).status_code == 302
    assert not Queue.objects.exists()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"name": "a b"}, "Use only letters"),
        ({"name": "taken"}, "A queue with this name already exists."),
        ({"keep_done": "-1 00:00:00"}, "Enter zero or more."),
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
    QueueFactory.create(name="settled", keep_done=timedelta(0), backoff_base=2)
    QueueFactory.create(name="runs", keep_failed=timedelta(days=90))
    names = ["blocked", "failed", "ran", "runs", "settled", "waits"]
    on_overview = {row.name for row in root.get(url("overview")).context["queues"]}
    assert {"ran", "runs", "settled", "waits"} <= on_overview
    assert listed_names(root) == names
    page = body(root, url("changelist", model="queue"))
    assert "6 queues" in page
    assert "done jobs not kept, first wait 2.0 s" in page
    assert "failed jobs kept for 90 d" in page
    assert f'href="{url("change", "runs", model="queue")}"' in page
    assert f'href="{url("add", model="queue")}?name=waits"' in page
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
    few = statements()
    for n in range(10):
        JobFactory.create(queue_name=f"q{n}")
        QueueFactory.create(name=f"q{n}")
        WorkerFactory.create(queues=[f"q{n}"])
    assert statements() == few == 8
