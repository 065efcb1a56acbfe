"""The buttons on the page of a worker that ask it to end."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client
from django.utils import timezone

from django_pgqueue.models import Worker
from tests.support.factories import WorkerFactory

from .helpers import body, post, staff, url

pytestmark = pytest.mark.django_db


def offered(client: Client, worker: Worker) -> set[str]:
    page = body(client, url("change", worker.pk, model="worker"))
    return {how for how in ("replace", "stop") if f'action="{url(how, worker.pk, model="worker")}"' in page}


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("replace", "1 process was asked to finish its jobs and end."),
        ("stop", "The worker was asked to finish its jobs and end, with all its processes."),
    ],
)
def test_a_worker_is_asked_to_end(root: Client, how: str, told: str) -> None:
    worker = WorkerFactory.create()
    assert offered(root, worker) == {"replace", "stop"}
    assert post(root, url(how, worker.pk, model="worker")) == (told, "success")
    assert Worker.objects.get().drain == how
    assert LogEntry.objects.get().change_message.startswith("Action: ")
    states = {"replace": "running, to be replaced", "stop": "running, to be stopped"}
    for page in (
        url("changelist", model="worker"),
        url("overview"),
        url("change", worker.pk, model="worker"),
    ):
        assert states[how] in body(root, page)


def test_selected_processes_are_replaced(root: Client) -> None:
    workers = WorkerFactory.create_batch(2)
    told = post(
        root,
        url("changelist", model="worker"),
        action="replace_workers",
        _selected_action=[w.pk for w in workers],
    )
    assert told == ("2 processes were asked to finish their jobs and end.", "success")
    assert set(Worker.objects.values_list("drain", flat=True)) == {"replace"}


@pytest.mark.parametrize(
    ("state", "hows"),
    [
        ({}, {"replace", "stop"}),
        ({"drain": "replace"}, {"stop"}),
        ({"drain": "stop"}, set()),
        ({"state": "draining"}, {"stop"}),
        ({"heartbeat_at": timezone.now() - timedelta(hours=1)}, set()),
    ],
)
def test_the_buttons_offer_what_can_be_done(root: Client, state: dict[str, Any], hows: set[str]) -> None:
    assert offered(root, WorkerFactory.create(**state)) == hows


def test_it_needs_its_permission() -> None:
    worker = WorkerFactory.create()
    viewer = staff("view_worker")
    assert offered(viewer, worker) == set()
    assert "replace_workers" not in body(viewer, url("changelist", model="worker"))
    assert viewer.post(url("stop", worker.pk, model="worker")).status_code == 403
    client = staff("view_worker", "drain_worker")
    assert offered(client, worker) == {"replace", "stop"}
    assert client.get(url("stop", worker.pk, model="worker")).status_code == 405
    assert post(client, url("stop", worker.pk, model="worker"))[1] == "success"


def test_a_worker_that_is_gone(root: Client) -> None:
    told = post(root, url("stop", 999, model="worker"))
    assert told[1] == "warning"
