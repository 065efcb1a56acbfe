"""Progress and steps that a worker writes while something else happens to the job."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.jobs import add, cancel, claim, finish, retry, statuses, value
from tests.support.sessions import Connect, Connection, start

pytestmark = pytest.mark.django_db(transaction=True)


def running(connection: Connection, **options: Any) -> int:
    add(connection, **options)
    (job,) = [row.id for row in claim(connection, 1)]
    connection.commit()
    return job


def write(
    connection: Connection, *jobs: int, lease: int = 1, step: str | None = None, done: float | None = 5
) -> list[int]:
    query = "SELECT _pgqueue_write_progress(%s, %s, %s::text[], %s::double precision[], %s, %s::text[])"
    n = len(jobs)
    written: list[int] = value(
        connection, query, list(jobs), [lease] * n, [step] * n, [done] * n, [10.0] * n, ["note"] * n
    )
    return written


def rows(connection: Connection) -> list[tuple[Any, ...]]:
    return connection.execute("SELECT job_id, done FROM pgqueue_progress ORDER BY job_id").fetchall()


def step_of(connection: Connection, job: int) -> Any:
    return value(connection, "SELECT current_step FROM pgqueue_job_live WHERE id = %s", job)


@pytest.mark.parametrize("outcome", ["done", "failed", "cancelled"])
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.promise("progress-gone")
def test_a_job_that_ends_during_a_write_leaves_no_row(connect: Connect, outcome: str, first: bool) -> None:
    one, other = connect(), connect(autocommit=True)
    job = running(one)
    if not first:
        write(other, job)
    assert write(one, job) == [job]  # and holds the row of the job
    ended = start(other, finish, [job], outcome).blocked()
    one.commit()
    assert ended.result() == [job]
    assert rows(other) == []
    assert statuses(other) == {job: outcome}


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.promise("progress-gone")
def test_a_write_leaves_out_a_job_that_ends(connect: Connect, first: bool) -> None:
    one, other = connect(), connect(autocommit=True)
    job, runs = running(one), running(one)
    if not first:
        write(other, job)
    assert finish(one, [job]) == [job]
    assert write(other, job, runs) == [runs]  # it does not wait
    one.commit()
    assert rows(other) == [(runs, 5.0)]
    assert write(other, job, runs) == [runs]


@pytest.mark.promise("progress-lease")
def test_a_write_after_the_lease_was_lost_changes_nothing(connect: Connect) -> None:
    one, other = connect(), connect(autocommit=True)
    job = running(one)
    assert finish(one, [job], "release") == [job]
    assert write(other, job) == []
    one.commit()
    assert write(other, job, step="old") == []
    assert [row.id for row in claim(one, 1, lease=2)] == [job]
    one.commit()
    assert write(other, job, step="old") == []
    assert write(other, job, lease=2, step="new") == [job]
    assert (step_of(other, job), rows(other)) == ("new", [(job, 5.0)])


def test_progress_that_is_written_by_the_next_attempt_outlives_the_one_before(connect: Connect) -> None:
    one = connect(autocommit=True)
    job = running(one)
    write(one, job)
    assert finish(one, [job], "retry") == [job]
    assert rows(one) == [(job, 5.0)]  # how far it came
    assert [row.marks for row in claim(one, 1, lease=2)] == [8]
    assert write(one, job, lease=2, done=1) == [job]
    assert finish(one, [job], "failed", lease=2) == [job]
    assert rows(one) == []
    assert retry(one, [job]) == 1
    assert [row.id for row in claim(one, 1, lease=3)] == [job]
    assert write(one, job, lease=3, done=2) == [job]
    assert rows(one) == [(job, 2.0)]
    assert finish(one, [job], lease=3) == [job]
    assert rows(one) == []


def test_a_cancel_of_a_job_that_waits_leaves_no_row(connect: Connect) -> None:
    one, other = connect(), connect(autocommit=True)
    job = running(one)
    write(one, job)
    finish(one, [job], "snooze", delay=60.0)
    cancelled = start(other, cancel, [job]).blocked()
    one.commit()
    assert cancelled.result() == 1
    assert rows(other) == []


def wait(connection: Connection, job: int) -> Any:
    return value(connection, "SELECT held FROM _pgqueue_wait(%s, 1, 'approved', 'event', 3600)", job)


@pytest.mark.parametrize("written", ["before the commit of the wait", "after it"])
def test_an_older_step_does_not_replace_the_wait_that_the_job_has_reached(
    connect: Connect, written: str
) -> None:
    one, other = connect(), connect(autocommit=True)
    job = running(one)
    assert write(other, job, step="render", done=None) == [job]
    assert wait(one, job)
    if written == "before the commit of the wait":
        assert write(other, job, step="upload") == []
    one.commit()
    assert write(other, job, step="upload") == [job]
    assert step_of(other, job) == "approved"
    assert finish(other, [job], "wait", delay=3600.0) == [job]
    assert value(other, "SELECT pgqueue_send_event(%s, 'approved')", job) is True
    assert [row.id for row in claim(other, 1, lease=2)] == [job]  # so it was due
    assert write(other, job, lease=2, step="upload") == [job]
    assert step_of(other, job) == "upload"


def test_a_write_does_not_wait_for_a_step_that_is_recorded(connect: Connect) -> None:
    one, other = connect(), connect(autocommit=True)
    job = running(one)
    query = "SELECT _pgqueue_record_step(%s, 1, %s, 1, %s, 0.1, NULL, '1')"
    assert value(one, query, job, True, "a") == "recorded"
    assert write(other, job, step="b") == []
    one.commit()
    assert write(one, job, step="b") == [job]
    recorded = start(other, lambda c: value(c, query, job, False, "b")).blocked()
    one.commit()
    assert recorded.result() == "recorded"


def test_two_writes_of_the_same_jobs_do_not_wait_for_each_other(connect: Connect) -> None:
    one, other = connect(), connect(autocommit=True)
    jobs = [running(one) for _ in range(3)]
    assert sorted(write(one, *jobs[:2])) == jobs[:2]
    assert write(other, *reversed(jobs)) == jobs[2:]
    one.commit()
    assert sorted(write(other, *jobs)) == jobs
