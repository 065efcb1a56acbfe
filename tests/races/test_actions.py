"""Actions of the admin and of commands, while a worker or another user changes the same rows."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from threading import Thread
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from django_pgqueue.admin.bulk import confirm
from django_pgqueue.jobs import chunks
from django_pgqueue.management.subcommands.changing import change_each
from django_pgqueue.models import Job, Schedule
from django_pgqueue.models.changes import retry as retry_rows
from django_pgqueue.testing import run_jobs
from tests.admin.helpers import ask, post, url
from tests.management.test_subcommands import run
from tests.support import schedules
from tests.support.factories import WorkerFactory
from tests.support.jobs import add, claim, finish, statuses
from tests.support.sessions import Connect, Connection, open_raw, who_waits_for
from tests.support.waiting import until

pytestmark = pytest.mark.django_db(transaction=True)


def commit_once_blocked(holder: Connection) -> Thread:
    """Commit as soon as the statement of any other session waits for this transaction."""

    def run() -> None:
        with open_raw() as observer:
            until(lambda: who_waits_for(holder, observer))
        holder.commit()

    thread = Thread(target=run, daemon=True)
    thread.start()
    return thread


WORDS = "were cancelled, or asked to stop if they were running."


@pytest.fixture(autouse=True)
def few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confirm, "MOST_AT_ONCE", 2)
    monkeypatch.setattr(chunks, "FIRST_SIZE", 2)


def states(jobs: list[int]) -> list[str]:
    found = dict(Job.objects.filter(pk__in=jobs).values_list("pk", "status"))
    return [found[pk] for pk in jobs]


def by_page(client: Client, jobs: list[int]) -> str:
    page = ask(client, "cancel_jobs", *(Job.objects.get(pk=pk) for pk in jobs))
    return page.confirm(client)[0]


def in_background(client: Client, jobs: list[int]) -> str:
    page = ask(client, "cancel_jobs", Job.objects.get(pk=jobs[0]), across=True)
    client.post(page.address, page.fields)
    [ran] = run_jobs(queues="default")
    return str(ran.result["words"])


def by_command(client: Client, jobs: list[int]) -> str:
    return run("cancel", "--status", "pending", "--queue", "later", "--yes")


@pytest.mark.parametrize(("cancels", "count", "words"), [
    (by_page, 2, "1 other changed in the meantime and was left alone."),
    (in_background, 5, f"4 jobs {WORDS} 1 other changed in the meantime and was left alone."),
    (
        by_command,
        2,
        "1 job was cancelled, or asked to stop. 1 job was left alone: it was in another state",
    ),
])  # fmt: skip
def test_a_job_that_is_claimed_meanwhile_is_left_alone(
    one: Connection, other: Connection, admin_client: Client, cancels: Callable[..., str], count: int,
    words: str,
) -> None:  # fmt: skip
    """Only those that wait are to be cancelled. So one that runs by now is not asked to stop."""
    first, *rest = jobs = add(other, count, queue_name="later")
    # A worker that lives, however slow the test is: without one, its job is lost, and waits again.
    worker = WorkerFactory.create(heartbeat_at=timezone.now() + timedelta(hours=1))
    one.execute(
        "UPDATE pgqueue_job_live SET status = 'running', worker = %s, lease = 1 WHERE id = %s",
        (worker.pk, first),
    )
    thread = commit_once_blocked(one)
    assert words in cancels(admin_client, jobs)
    thread.join()
    assert states(jobs) == ["running", *["cancelled"] * len(rest)]
    assert Job.objects.get(pk=first).cancel_requested_at is None


# -- commands


def test_a_job_that_is_done_meanwhile_does_not_run_a_second_time(other: Connection) -> None:
    """It waited for another attempt when its id was looked up."""
    (job,) = add(other)
    seen = Job.objects.get(pk=job)
    claim(other, 1)
    assert finish(other, [job]) == [job]
    assert list(change_each(retry_rows, [seen])) == [(seen, False)]
    assert statuses(other) == {job: "done"}


# -- schedules, while a worker that starts writes what code declares


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
    admin_client: Client, worker: Connection
) -> None:
    schedules.declare("nightly", jitter=schedules.SHORT)
    declare_priority(worker, 9)
    meanwhile(worker, admin_client, url("restore", "nightly", model="schedule"), {"confirmed": "1"})
    schedule = Schedule.objects.get()
    assert (schedule.jitter, schedule.priority, schedule.overridden) == (schedules.NONE, 9, [])


def test_an_edit_leaves_alone_what_a_new_declaration_changes(
    admin_client: Client, worker: Connection
) -> None:
    schedule = schedules.declare("nightly")
    declare_priority(worker, 9)
    sent = {
        "task_path": schedule.task_path, "args": json.dumps(schedule.args), "kwargs": "{}",
        "cron": "30 4 * * *", "timezone": "UTC", "jitter": "0", "catch_up": "latest", "catch_up_limit": "100",
        "overlap": "allow",
    }  # fmt: skip
    meanwhile(worker, admin_client, url("change", "nightly", model="schedule"), sent)
    schedule.refresh_from_db()
    assert (schedule.cron, schedule.priority) == ("30 4 * * *", 9)
    assert schedule.overridden == ["cron", "every"]


def test_a_schedule_that_is_being_retired_does_not_run(admin_client: Client, worker: Connection) -> None:
    schedules.declare("nightly")
    worker.execute("UPDATE pgqueue_schedule SET retired_at = now()")
    address, data = url("enqueue", "nightly", model="schedule"), {"confirmed": "1"}
    response = meanwhile(worker, admin_client, address, data)
    assert response["Location"] == url("change", "nightly", model="schedule")
    assert not Job.objects.exists()
    message, level = post(admin_client, address, **data)
    assert (message.startswith("No job is enqueued: "), level) == (True, "warning")
