"""A call on its way to another database: its worker dies, sleeps or is not alone, or it is cancelled."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any
from unittest.mock import patch

import pytest
from django.db import connections

from django_pgqueue import cancel, enqueue, enqueue_many, retry, run_now
from django_pgqueue.jobs import relay
from django_pgqueue.models import Job
from django_pgqueue.testing import run_jobs
from tests.app.tasks import noop
from tests.support.jobs import Range, claim, finish
from tests.support.sessions import Connect, Connection, behind, start, who_waits_for
from tests.support.waiting import until
from tests.support.workers import fresh, recover, working

pytestmark = [
    pytest.mark.django_db(transaction=True, databases=["default", "other"]),
    pytest.mark.usefixtures("settled_server"),
]

RELAYED = noop.using(relay="other")
#: Sessions in one database show that one waits for another.
SAME = noop.using(relay="default")


@pytest.fixture
def there(connect: Connect) -> Connection:
    """A session in the other database that commits each statement."""
    return connect("other", autocommit=True)


@pytest.fixture
def slow(connect: Connect) -> Connection:
    """Another one, whose statements stay in a transaction until the test ends it."""
    return connect("other")


def arrived() -> list[int]:
    return list(Job.objects.using("other").order_by("pk").values_list("pk", flat=True))


def receive(connection: Connection, *jobs: Job) -> dict[int, int]:
    """Hand over the calls of jobs as a worker does. Return the ids of the jobs there."""
    calls = [
        {**job.args[1], "id": job.pk, "token": job.args[2], "claimed_at": job.last_attempted_at}
        for job in jobs
    ]
    found = connection.execute(relay._RECEIVE_SQL, [json.dumps(calls, default=str)]).fetchall()
    return dict(found)


@pytest.mark.promise("relayed-once")
def test_a_worker_that_dies_between_the_commits_has_handed_over_once(
    other: Connection, there: Connection
) -> None:
    job = enqueue(RELAYED)
    claim(other, ranges=[Range("relay")])
    receive(there, job)
    assert recover(other) == 1
    run_jobs(raise_failures=False)
    assert [f"other:{key}" for key in arrived()] == [fresh(job).result]


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_a_second_worker_waits_for_the_transaction_of_the_first(
    end: str, one: Connection, other: Connection
) -> None:
    job = enqueue(SAME)
    first = receive(one, job)
    second = behind(one, other, receive, job, end=end)
    assert [*second.values()] == [key for key in Job.objects.values_list("pk", flat=True) if key != job.pk]
    assert (second == first) == (end == "commit")


def test_two_workers_with_the_same_calls_never_wait_for_each_other(
    one: Connection, other: Connection
) -> None:
    """Calls are inserted in the order of their ids, whatever order they came in."""
    jobs = [enqueue(SAME), enqueue(SAME)]
    receive(one, jobs[0])
    waiting = start(other, receive, *reversed(jobs)).blocked()
    receive(one, jobs[1])  # the other one does not hold it
    one.commit()
    assert len(waiting.result()) == 2
    assert Job.objects.count() == 4


@pytest.fixture
def held(slow: Connection, there: Connection) -> Iterator[Job]:
    """A job whose worker is between the commits: a transaction that has its row makes it wait."""
    job = enqueue(RELAYED)
    slow.execute("INSERT INTO pgqueue_received (id, token) VALUES (%s, %s)", (job.pk, job.args[2]))
    with working():
        until(lambda: who_waits_for(slow, there), what="a hand-over that waits")
        yield job


def states_there() -> list[str]:
    return [job.status for job in Job.objects.using("other").order_by("pk")]


def test_a_cancel_between_the_commits_is_one_of_the_job_there(held: Job, slow: Connection) -> None:
    assert cancel(held) == 1
    slow.rollback()
    until(lambda: states_there() == ["cancelled"], what="the cancel there")
    until(lambda: fresh(held).is_finished, what="the end of the hand-over")  # cancelled, or done before that


@pytest.mark.parametrize("asked", ["while it runs", "after its worker was lost"])
@pytest.mark.parametrize("way", [cancel, lambda job: cancel(Job.objects.filter(pk=job.pk))])
def test_a_cancel_reaches_what_a_dead_worker_has_handed_over(
    asked: str, way: Any, other: Connection, there: Connection
) -> None:
    """The worker has committed there and reports nothing. No attempt comes any more."""
    job = enqueue(RELAYED)
    claim(other, ranges=[Range("relay")])
    receive(there, job)
    if asked == "while it runs":
        assert way(job) == 1
        assert recover(other) == 1
    else:
        assert recover(other) == 1
        assert way(job) == 1
    assert fresh(job).status == "cancelled"
    run_jobs(raise_failures=False)
    assert states_there() == ["cancelled"]


def test_a_cancel_is_there_before_the_worker_that_overslept(other: Connection, there: Connection) -> None:
    """It finds that its call was cancelled. A retry of the job is another attempt, whose call is welcome."""
    job = enqueue(RELAYED)
    claim(other, ranges=[Range("relay")])
    slept = fresh(job)
    assert recover(other) == 1
    cancel(job)
    run_jobs()
    assert receive(there, slept) == {job.pk: None}
    assert arrived() == []
    assert retry(job) == 1
    run_jobs()
    assert [f"other:{key}" for key in arrived()] == [fresh(job).result]


def test_a_cancel_waits_for_the_transaction_of_the_hand_over(one: Connection, other: Connection) -> None:
    job = enqueue(SAME)
    claim(other, ranges=[Range("relay")])
    receive(one, job)
    other.execute("SELECT pgqueue_cancel(ARRAY[%s::bigint])", [job.pk])
    other.commit()
    (taken,) = Job.objects.filter(task_path=relay.take_back.module_path)

    def take_back(connection: Connection) -> Any:
        return connection.execute(relay._TAKE_BACK_SQL, [json.dumps(taken.args[1])]).fetchone()

    found = behind(one, other, take_back)
    (key,) = Job.objects.filter(task_path=RELAYED.module_path).values_list("pk", flat=True)
    assert found == ([key],)


def test_a_report_that_comes_after_the_cancel_does_not_save_the_call(
    other: Connection, there: Connection
) -> None:
    """The worker reports the hand-over as done, and has not heard that it was asked to stop."""
    job = enqueue(RELAYED)
    claim(other, ranges=[Range("relay")])
    receive(there, job)
    assert cancel(job) == 1
    assert finish(other, [job.pk]) == [job.pk]
    run_jobs()
    assert (fresh(job).status, states_there()) == ("done", ["cancelled"])


def test_a_call_that_waits_for_its_turn_is_cancelled_here(held: Job, slow: Connection) -> None:
    behind_it = enqueue(RELAYED)
    until(lambda: fresh(behind_it).status == "running", what="the second hand-over")
    cancel(behind_it)
    until(lambda: fresh(behind_it).status == "cancelled", what="the cancel")
    slow.rollback()
    until(lambda: fresh(held).is_finished, what="the end of the hand-over")
    assert len(arrived()) == 1


def test_those_that_wait_share_a_transaction(held: Job, slow: Connection, there: Connection) -> None:
    jobs = enqueue_many([RELAYED.bind(number) for number in range(3)])
    for job in jobs:
        until(lambda job=job: fresh(job).status == "running", what="the other hand-overs")  # type: ignore[misc]
    slow.rollback()
    until(lambda: all(fresh(job).is_finished for job in jobs), what="their end")
    query = "SELECT count(*), count(DISTINCT xmin::text) FROM pgqueue_received WHERE job = ANY (%s)"
    assert there.execute(query, [arrived()]).fetchone() == (4, 2)


@contextmanager
def at(**address: str) -> Iterator[None]:
    """The other database has this address for all connections from now on."""
    connections["other"].close()
    with patch.dict(connections.settings["other"], address), closing(connections["other"]):
        yield


def test_a_database_that_is_down_for_long_costs_its_own_jobs_only() -> None:
    """More attempts than errors are kept, without the delays between them."""
    job, local = enqueue(RELAYED), enqueue(SAME)
    delays = []
    with at(PORT="1"):
        for _ in range(45):
            run_jobs(raise_failures=False)
            found = fresh(job)
            assert (found.status, "Connection refused" in found.errors[-1]["message"]) == ("retry", True)
            assert found.last_attempted_at is not None
            delays.append((found.run_after - found.last_attempted_at).total_seconds())
            run_now(job)
        assert fresh(local).is_finished
    assert max(delays) <= 31
    assert min(delays[10:]) >= 15
    assert len(found.errors) <= 40
    run_jobs(raise_failures=False)
    assert [f"other:{key}" for key in arrived()] == [fresh(job).result]


def test_a_database_that_does_not_answer_costs_one_slot() -> None:
    """It takes the connection and says nothing. One job waits for it, and the others are retried."""
    jobs: Any = enqueue_many([RELAYED.bind(number) for number in range(8)])
    with socket.create_server(("127.0.0.1", 0), backlog=100) as silent:
        address = {"HOST": "127.0.0.1", "PORT": str(silent.getsockname()[1])}
        with at(**address), patch.object(relay, "PATIENCE", 0.3), working(threads=2):
            until(lambda: sum(bool(fresh(job).errors) for job in jobs) == 7, what="their failures")
            assert "no answer for 0.3 seconds" in fresh(jobs[-1]).errors[0]["message"]
            local = enqueue(SAME)
            until(lambda: fresh(local).is_finished, what="a hand-over to another database")
            silent.close()  # the kernel ends the connection, so that the thread ends
            until(lambda: all(fresh(job).errors for job in jobs), what="the failure of the first")
