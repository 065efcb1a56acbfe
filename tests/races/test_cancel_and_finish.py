from __future__ import annotations

import pytest

from tests.support.jobs import add, cancel, claim, finish, live, retry, statuses, value
from tests.support.sessions import Connect, Connection, start

pytestmark = pytest.mark.django_db(transaction=True)


def running(connection: Connection, count: int = 1) -> list[int]:
    """Jobs that worker 1 has claimed under lease 1."""
    add(connection, count)
    jobs = [row.id for row in claim(connection, count)]
    connection.commit()
    return jobs


def asked(connection: Connection, job: int) -> bool:
    query = "SELECT cancel_requested_at IS NOT NULL FROM pgqueue_job WHERE id = %s"
    return bool(value(connection, query, job))


def test_a_job_that_is_done_while_it_is_asked_to_stop_is_done(connect: Connect) -> None:
    one, other = connect(), connect(autocommit=True)
    (job,) = running(one)
    assert cancel(one, [job]) == 1
    finished = start(other, finish, [job]).blocked()
    one.commit()
    assert finished.result() == [job]
    assert statuses(other) == {job: "done"}
    assert asked(other, job)


@pytest.mark.parametrize("kind", ["retry", "snooze", "release", "unknown"])
@pytest.mark.promise("cancel-no-retry")
def test_a_job_that_would_go_back_while_it_is_asked_to_stop_is_cancelled(connect: Connect, kind: str) -> None:
    one, other = connect(), connect(autocommit=True)
    (job,) = running(one)
    assert cancel(one, [job]) == 1
    finished = start(other, finish, [job], kind).blocked()
    one.commit()
    assert finished.result() == [job]
    assert statuses(other) == {job: "cancelled"}


@pytest.mark.parametrize("kind", ["retry", "snooze", "release", "unknown"])
def test_a_cancel_that_comes_while_a_job_goes_back_takes_it_out_of_its_queue(
    connect: Connect, kind: str
) -> None:
    one, other = connect(), connect(autocommit=True)
    (job,) = running(one)
    assert finish(one, [job], kind) == [job]
    cancelled = start(other, cancel, [job]).blocked()
    one.commit()
    assert cancelled.result() == 1
    assert statuses(other) == {job: "cancelled"}


def test_a_cancel_that_comes_while_a_job_becomes_done_changes_nothing(connect: Connect) -> None:
    one, other = connect(), connect(autocommit=True)
    (job,) = running(one)
    assert finish(one, [job]) == [job]
    cancelled = start(other, cancel, [job]).blocked()
    one.commit()
    assert cancelled.result() == 0
    assert statuses(other) == {job: "done"}
    assert not asked(other, job)


@pytest.mark.promise("cancel")
def test_a_cancel_that_comes_while_a_job_is_claimed_asks_it_to_stop(connect: Connect) -> None:
    claimer, other = connect(), connect(autocommit=True)
    (job,) = add(other)
    channel = value(other, "SELECT _pgqueue_channel()")
    other.execute(f'LISTEN "{channel}"')
    assert [row.id for row in claim(claimer)] == [job]
    cancelled = start(other, cancel, [job]).blocked()
    claimer.commit()
    assert cancelled.result() == 1
    assert live(other) == {job: "running"}
    assert asked(other, job)
    assert [heard.payload for heard in other.notifies(timeout=20, stop_after=1)] == [f"cancel {job}"]


def test_two_cancels_at_once_count_a_job_once(connect: Connect) -> None:
    one, other = connect(), connect(autocommit=True)
    (job,) = running(one)
    (waiting,) = add(other)
    assert cancel(one, [job, waiting]) == 2
    second = start(other, cancel, [job, waiting]).blocked()
    one.commit()
    assert second.result() == 0


def test_a_retry_that_comes_while_a_job_fails_brings_it_back(connect: Connect) -> None:
    one, other = connect(), connect(autocommit=True)
    (job,) = running(one)
    assert finish(one, [job], "failed") == [job]
    retried = start(other, retry, [job]).blocked()
    one.commit()
    assert retried.result() == 1
    assert statuses(other) == {job: "pending"}


def test_a_retry_that_comes_while_a_job_is_cancelled_brings_it_back(connect: Connect) -> None:
    one, other = connect(), connect(autocommit=True)
    (job,) = add(other)
    assert cancel(one, [job]) == 1
    retried = start(other, retry, [job]).blocked()
    one.commit()
    assert retried.result() == 1
    assert statuses(other) == {job: "pending"}


def test_a_finish_under_a_lease_that_was_lost_meanwhile_is_refused_alone(connect: Connect) -> None:
    one, other = connect(), connect(autocommit=True)
    lost, kept = running(one, 2)
    assert finish(one, [lost], "release") == [lost]
    assert [row.id for row in claim(one, worker=2, lease=2)] == [lost]
    reported = start(other, finish, [lost, kept]).blocked()
    one.commit()
    assert reported.result() == [kept]
    assert statuses(other) == {lost: "running", kept: "done"}


def test_functions_that_lock_several_jobs_never_deadlock(connect: Connect) -> None:
    holder, one, other = connect(), connect(autocommit=True), connect(autocommit=True)
    jobs = running(holder, 20)
    # Both wait for the first job while they hold none of the others.
    holder.execute("SELECT FROM pgqueue_job_live WHERE id = %s FOR UPDATE", (jobs[0],))
    finished = start(one, finish, jobs[::-1], "retry").blocked()
    cancelled = start(other, cancel, jobs[7:] + jobs[:7]).blocked()
    holder.rollback()
    assert finished.result() == jobs
    assert cancelled.result() == 20
    assert set(statuses(other).values()) == {"cancelled"}
