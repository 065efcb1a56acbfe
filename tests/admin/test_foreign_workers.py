"""Workers in other languages in the admin: they have no supervisor, and may have no process id."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from django_pgqueue.admin.workers import Fleet
from django_pgqueue.models import Worker
from tests.support.factories import JobFactory, ScheduleFactory, WorkerFactory

from .helpers import body, confirm, url

pytestmark = pytest.mark.django_db


def foreign(age: float = 0) -> Worker:
    return WorkerFactory.create(
        id=7, host="go-1", pid=0, supervisor=None, version="", holds_lock=False, started_jobs=[],
        slots=1, heartbeat_at=timezone.now() - timedelta(seconds=age),
    )  # fmt: skip


def test_the_pages_show_it(root: Client) -> None:
    worker = foreign(age=14)
    job = JobFactory.create(running=True, worker=worker.pk)
    listed = body(root, url("changelist", model="worker"))
    assert ">go-1</a>" in listed
    assert "go-1:0" not in listed
    page = body(root, url("change", worker.pk, model="worker"))
    assert "1 of 1" in page
    assert "None" not in page
    assert "running" in page
    assert "silent" not in page
    assert "go-1" in body(root, url("change", job.pk))


def test_it_is_silent_after_half_of_the_lease() -> None:
    foreign(age=16)
    assert [worker.vital for worker in Fleet("default").workers] == ["silent"]


def test_it_can_be_stopped_but_nobody_would_replace_it(root: Client) -> None:
    worker = foreign()
    page = body(root, url("change", worker.pk, model="worker"))
    assert f'action="{url("stop", worker.pk, model="worker")}"' in page
    assert f'action="{url("replace", worker.pk, model="worker")}"' not in page
    effects, _told = confirm(root, url("stop", worker.pk, model="worker"))
    assert effects[0].endswith("within its grace period, and end.")
    assert Worker.objects.get().drain == "stop"


def test_it_serves_queues_but_fires_no_schedules(root: Client) -> None:
    foreign()
    ScheduleFactory.create()
    fleet = Fleet("default")
    assert fleet.trouble == ""
    assert fleet.attendance("mail") == "1"
    assert "Schedules stand still" in body(root, url("changelist", model="schedule"))
