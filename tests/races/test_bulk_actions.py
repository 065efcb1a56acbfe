"""An action on many jobs in the background, while others change the same jobs, cancel it, or kill it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from django_pgqueue import cancel, retry
from django_pgqueue.admin.bulk import confirm
from django_pgqueue.admin.bulk import task as bulk
from django_pgqueue.jobs import chunks
from django_pgqueue.models import Job
from django_pgqueue.models.changes import run_now
from django_pgqueue.testing import run_jobs
from tests.admin.helpers import ask
from tests.support.factories import WorkerFactory
from tests.support.jobs import add, value
from tests.support.sessions import Connect, Connection, open_raw, who_waits_for
from tests.support.waiting import until
from tests.support.workers import working

from .test_confirmed_actions import commit_once_blocked

pytestmark = pytest.mark.django_db(transaction=True)

WORDS = "were cancelled, or asked to stop if they were running."


@pytest.fixture(autouse=True)
def few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confirm, "MOST_AT_ONCE", 2)
    monkeypatch.setattr(chunks, "FIRST_SIZE", 2)


def ordered(client: Client, count: int) -> tuple[Job, list[int]]:
    """Let the admin cancel so many jobs in the background. Return the job that does it, and theirs.

    Its worker does not fall silent before the page is sent, however slow the test is.
    """
    WorkerFactory.create(heartbeat_at=timezone.now() + timedelta(hours=1))
    with open_raw() as other:
        jobs = add(other, count, queue_name="later")
    client.force_login(User.objects.create_superuser("root"))
    page = ask(client, "cancel_jobs", Job.objects.get(pk=jobs[0]), across=True)
    client.post(page.address, page.fields)
    return Job.objects.get(task_path=bulk.run.module_path), jobs


def states(jobs: list[int]) -> list[str]:
    found = dict(Job.objects.filter(pk__in=jobs).values_list("pk", "status"))
    return [found[pk] for pk in jobs]


@contextmanager
def blocked_at(connection: Connection, job: int) -> Iterator[int]:
    """Hold the row of a job during the block. Yield the id of the session that waits for it."""
    connection.execute("SELECT FROM pgqueue_job_live WHERE id = %s FOR UPDATE", (job,))
    with working(queues=["default"]), open_raw() as observer:
        yield until(lambda: who_waits_for(connection, observer))
        connection.rollback()
        until(lambda: not Job.objects.filter(task_path=bulk.run.module_path, status="running").exists())


def test_a_job_that_is_claimed_while_its_chunk_waits_for_it_is_left_alone(
    connect: Connect, client: Client
) -> None:
    claimer = connect()
    _, jobs = ordered(client, 5)
    claimer.execute(
        "UPDATE pgqueue_job_live SET status = 'running', worker = 1, lease = 1 WHERE id = %s", jobs[:1]
    )
    thread = commit_once_blocked(claimer)
    [ran] = run_jobs(queues="default")
    thread.join()
    assert ran.result["words"] == f"4 jobs {WORDS} 1 other changed in the meantime and was left alone."
    assert states(jobs) == ["running", *["cancelled"] * 4]
    assert Job.objects.get(pk=jobs[0]).cancel_requested_at is None


def test_two_of_them_at_once_change_each_job_once(connect: Connect, client: Client) -> None:
    """The other one is in its first chunk. It does not count what this one has changed, or the reverse."""
    other = connect()
    _, jobs = ordered(client, 5)
    assert value(other, "SELECT pgqueue_cancel(%s::bigint[])", jobs[:2]) == jobs[:2]
    thread = commit_once_blocked(other)
    [ran] = run_jobs(queues="default")
    thread.join()
    assert ran.result["words"] == f"3 jobs {WORDS} 2 others changed in the meantime and were left alone."
    assert states(jobs) == ["cancelled"] * 5


def test_a_cancel_in_the_middle_of_a_chunk_stops_it_after_this_chunk(
    connect: Connect, client: Client
) -> None:
    job, jobs = ordered(client, 6)
    with blocked_at(connect(), jobs[3]):
        assert states(jobs) == ["cancelled"] * 2 + ["pending"] * 4
        assert cancel(job) == 1
    job.refresh_from_db()
    assert (job.status, job.waiting_reason) == ("cancelled", f"Cancelled. 4 jobs {WORDS}")
    assert states(jobs) == ["cancelled"] * 4 + ["pending"] * 2


def test_a_kill_in_the_middle_of_a_chunk_changes_nothing_twice(connect: Connect, client: Client) -> None:
    job, jobs = ordered(client, 6)
    with blocked_at(connect(), jobs[3]) as pid, open_raw() as killer:
        assert value(killer, "SELECT pg_terminate_backend(%s)", pid)
        until(lambda: Job.objects.filter(pk=job.pk, status="retry").exists())
        assert states(jobs) == ["cancelled"] * 2 + ["pending"] * 4, "its chunk was rolled back"
        assert retry(jobs[0]) == 1
    run_now(job)
    [ran] = run_jobs(queues="default")
    assert ran.result["changed"] == 6
    assert states(jobs) == ["pending", *["cancelled"] * 5]
