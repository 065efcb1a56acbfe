"""Schedules are changed in the admin while a worker that starts writes what code declares."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from django_pgqueue.models import Job, Schedule
from tests.admin.helpers import post, url
from tests.support import shown_schedules as schedules
from tests.support.sessions import Connect, Connection

from .test_confirmed_actions import commit_once_blocked

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def root(client: Client) -> Client:
    client.force_login(User.objects.create_superuser("root"))
    return client


@pytest.fixture
def worker(connect: Connect) -> Connection:
    """The session of a worker that starts. Its transaction stays open."""
    return connect()


def declare_priority(worker: Connection, priority: int) -> None:
    """Write a new declaration."""
    worker.execute(
        "UPDATE pgqueue_schedule SET priority = %s,"
        " declared = jsonb_set(declared, '{priority}', to_jsonb(%s::integer))",
        (priority, priority),
    )


def meanwhile(worker: Connection, client: Client, address: str, data: dict[str, Any]) -> Any:
    """Send the form, and commit the worker's transaction once the form waits for it."""
    thread = commit_once_blocked(worker)
    response = client.post(address, data)
    thread.join()
    assert response.status_code == 302
    return response


def test_back_to_what_is_declared_means_the_declaration_that_is_being_written(
    root: Client, worker: Connection
) -> None:
    schedules.declare("nightly", jitter=schedules.SHORT)
    declare_priority(worker, 9)
    meanwhile(worker, root, url("restore", "nightly", model="schedule"), {"confirmed": "1"})
    schedule = Schedule.objects.get()
    assert (schedule.jitter, schedule.priority, schedule.overridden) == (schedules.NONE, 9, [])


def test_an_edit_leaves_alone_what_a_new_declaration_changes(root: Client, worker: Connection) -> None:
    schedule = schedules.declare("nightly")
    declare_priority(worker, 9)
    sent = {
        "task_path": schedule.task_path, "args": json.dumps(schedule.args), "kwargs": "{}",
        "cron": "30 4 * * *", "timezone": "UTC", "jitter": "0", "catch_up": "latest", "catch_up_limit": "100",
        "overlap": "allow",
    }  # fmt: skip
    meanwhile(worker, root, url("change", "nightly", model="schedule"), sent)
    schedule.refresh_from_db()
    assert (schedule.cron, schedule.priority) == ("30 4 * * *", 9)
    assert schedule.overridden == ["cron", "every"]


def test_a_schedule_that_is_being_retired_does_not_run(root: Client, worker: Connection) -> None:
    schedules.declare("nightly")
    worker.execute("UPDATE pgqueue_schedule SET retired_at = now()")
    address, data = url("enqueue", "nightly", model="schedule"), {"confirmed": "1"}
    response = meanwhile(worker, root, address, data)
    assert response["Location"] == url("change", "nightly", model="schedule")
    assert not Job.objects.exists()
    message, level = post(root, address, **data)
    assert (message.startswith("No job is enqueued: "), level) == (True, "warning")
