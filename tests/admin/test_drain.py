"""The buttons on the page of a worker that ask it to end."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client, override_settings
from django.urls import reverse
from django.utils import timezone

from django_pgqueue.models import Worker
from tests.support.factories import JobFactory, WorkerFactory

from .helpers import Page, body, confirm, post, staff, url

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
    address = url(how, worker.pk, model="worker")
    page = root.post(address).content.decode()
    assert "Nothing has changed yet." in page
    assert f'href="{url("change", worker.pk, model="worker")}"' in page
    assert Worker.objects.get().drain == ""
    assert confirm(root, address)[1] == (told, "success")
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
    WorkerFactory.create()
    effects, told = confirm(
        root,
        url("changelist", model="worker"),
        action="replace_workers",
        _selected_action=[w.pk for w in workers],
    )
    words = (
        "would start no more jobs, finish those that run (0 of 4) within its grace period, and be replaced."
    )
    assert effects == [f"{worker} {words}" for worker in workers]
    assert told == ("2 processes were asked to finish their jobs and end.", "success")
    assert list(Worker.objects.order_by("pk").values_list("drain", flat=True)) == ["replace", "replace", ""]


def test_all_that_match_are_those_that_were_shown(root: Client) -> None:
    shown = WorkerFactory.create()
    address = url("changelist", model="worker")
    data = {"action": "replace_workers", "_selected_action": [shown.pk], "select_across": "1"}
    page = Page(address, root.post(address, data).content.decode())
    later = WorkerFactory.create()
    page.confirm(root)
    assert list(Worker.objects.filter(drain="replace")) == [shown]
    assert later != shown


def test_processes_that_end_already_or_are_dead_are_left_alone(root: Client) -> None:
    long_ago = timezone.now() - timedelta(hours=1)
    one, asked, draining, dead = (
        WorkerFactory.create(**state)
        for state in ({}, {"drain": "replace"}, {"state": "draining"}, {"heartbeat_at": long_ago})
    )
    address = url("changelist", model="worker")
    data = {"action": "replace_workers", "_selected_action": [asked.pk, draining.pk, dead.pk]}
    page = Page(address, root.post(address, data).content.decode())
    assert "Nothing would change." in page.content
    assert not page.offers_to_act
    effects, told = confirm(
        root, address, **{**data, "_selected_action": [w.pk for w in (one, asked, draining, dead)]}
    )
    assert effects[1:] == [
        f"{asked} already finishes its jobs and ends.",
        f"{draining} already finishes its jobs and ends.",
        f"{dead} is dead, and would not see it.",
    ]
    assert told == ("1 process was asked to finish its jobs and end.", "success")
    assert set(Worker.objects.exclude(drain="")) == {one, asked}


def test_a_stop_shows_all_processes_of_the_supervisor(root: Client) -> None:
    first, second = WorkerFactory.create_batch(2, supervisor=7)
    WorkerFactory.create(supervisor=8)
    JobFactory.create(running=True, worker=second.pk)
    effects, _told = confirm(root, url("stop", first.pk, model="worker"))
    words = "would start no more jobs, finish those that run ({} of 4) within its grace period, and end."
    assert effects == [f"{first} {words.format(0)}", f"{second} {words.format(1)}"]
    assert list(Worker.objects.order_by("pk").values_list("drain", flat=True)) == ["stop", "", ""]


@pytest.mark.parametrize(
    ("how", "other", "warns"),
    [
        ("stop", {}, False),
        ("stop", {"state": "draining"}, True),
        ("stop", {"heartbeat_at": timezone.now() - timedelta(hours=1)}, True),
        ("replace", {"state": "draining"}, False),
    ],
)
def test_the_page_warns_if_nobody_would_be_left(
    root: Client, how: str, other: dict[str, Any], warns: bool
) -> None:
    worker = WorkerFactory.create(supervisor=7)
    WorkerFactory.create(supervisor=8, **other)
    page = root.post(url(how, worker.pk, model="worker")).content.decode()
    assert ("No worker would be left that starts jobs." in page) is warns


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
    assert confirm(client, url("stop", worker.pk, model="worker"))[1][1] == "success"
    assert viewer.post(url("stop", worker.pk, model="worker"), {"confirmed": "1"}).status_code == 403


def test_a_worker_that_is_gone(root: Client) -> None:
    told = post(root, url("stop", 999, model="worker"))
    assert told[1] == "warning"


@override_settings(ROOT_URLCONF="tests.admin.sites")
@pytest.mark.django_db(databases=["default", "other"])
def test_another_site_drains_in_its_database(root: Client) -> None:
    here = WorkerFactory.create()
    Worker.objects.using("other").create(**Worker.objects.values().get())
    address = reverse("ops:django_pgqueue_worker_stop", args=[here.pk])
    effects, told = confirm(root, address)
    assert len(effects) == 1
    assert told[1] == "success"
    assert Worker.objects.using("other").get().drain == "stop"
    assert Worker.objects.get().drain == ""


def test_a_worker_that_ends_before_the_confirmation(root: Client) -> None:
    first, second = WorkerFactory.create_batch(2)
    address = url("changelist", model="worker")
    data = {"action": "replace_workers", "_selected_action": [first.pk, second.pk]}
    page = Page(address, root.post(address, data).content.decode())
    first.delete()
    assert page.confirm(root) == ("1 process was asked to finish its jobs and end.", "success")
