"""Steps and events against what happens to the job at the same moment."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.support.jobs import add, cancel, claim, finish, statuses, value
from tests.support.sessions import Connect, Connection, start

pytestmark = pytest.mark.django_db(transaction=True)


def running(connection: Connection) -> int:
    add(connection)
    (job,) = [row.id for row in claim(connection, 1)]
    connection.commit()
    return job


def record(connection: Connection, job: int, name: str, *, lease: int = 1, first: bool = True) -> Any:
    query = "SELECT _pgqueue_record_step(%s, %s, %s, 1, %s, 0.1, NULL, '1')"
    return value(connection, query, job, lease, first, name)


def wait(connection: Connection, job: int, *, lease: int = 1) -> tuple[Any, ...]:
    """Reach the place where the job waits: held, ready."""
    query = "SELECT held, ready FROM _pgqueue_wait(%s, %s, 'approved', 'event', 3600)"
    row = connection.execute(query, (job, lease)).fetchone()
    assert row is not None
    return tuple(row)


def send(connection: Connection, job: int) -> Any:
    return value(connection, "SELECT pgqueue_send_event(%s, 'approved', '5')", job)


def is_due(connection: Connection, job: int) -> bool:
    query = (
        "SELECT status IN ('pending', 'retry') AND run_after <= clock_timestamp() AND waiting_reason = ''"
        " FROM pgqueue_job_live WHERE id = %s"
    )
    return bool(value(connection, query, job))


def suspend(connection: Connection, job: int) -> list[int]:
    return finish(connection, [job], "wait", delay=3600.0, started=0.0, reason="waits for the event approved")


@pytest.mark.promise("event-not-lost")
def test_a_signal_that_comes_before_the_job_is_asleep_makes_it_due(connect: Connect) -> None:
    one, other = connect(), connect(autocommit=True)
    job = running(one)
    assert wait(other, job) == (True, False)
    assert send(one, job) is True  # and holds the row of the job
    asleep = start(other, suspend, job).blocked()
    one.commit()
    assert asleep.result() == [job]
    assert is_due(other, job)


@pytest.mark.promise("event-not-lost")
def test_a_signal_that_comes_while_the_job_goes_to_sleep_makes_it_due(connect: Connect) -> None:
    one, other = connect(), connect(autocommit=True)
    job = running(one)
    assert wait(other, job) == (True, False)
    assert suspend(one, job) == [job]
    sent = start(other, send, job).blocked()
    one.commit()
    assert sent.result() is True
    assert is_due(other, job)


def test_a_signal_that_comes_while_the_job_looks_for_it_is_found_or_makes_it_due(connect: Connect) -> None:
    one, other = connect(), connect(autocommit=True)
    job = running(one)
    assert send(one, job) is True
    waiting = start(other, wait, job).blocked()
    one.commit()
    assert waiting.result() == (True, True)


def test_a_signal_does_not_reach_a_job_that_ends_at_the_same_time(connect: Connect) -> None:
    one, other = connect(), connect(autocommit=True)
    job = running(one)
    assert finish(one, [job]) == [job]
    sent = start(other, send, job).blocked()
    one.commit()
    with pytest.raises(psycopg.errors.IntegrityError, match=f"there is no live job {job}"):
        sent.result()
    assert value(other, "SELECT count(*) FROM pgqueue_step") == 0


@pytest.mark.promise("event-not-lost")
def test_a_signal_that_is_not_committed_yet_is_folded_when_the_job_ends(connect: Connect) -> None:
    one, other = connect(), connect(autocommit=True)
    job = running(one)
    assert send(one, job) is True
    ended = start(other, finish, [job]).blocked()
    one.commit()
    assert ended.result() == [job]
    assert value(other, "SELECT count(*) FROM pgqueue_step") == 0
    assert value(other, "SELECT steps -> 0 ->> 'name' FROM pgqueue_job WHERE id = %s", job) == "approved"


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.promise("step-lease")
def test_recovery_waits_for_a_step_that_is_being_recorded(connect: Connect, first: bool) -> None:
    one, other = connect(), connect(autocommit=True)
    job = running(one)
    if not first:
        assert record(one, job, "zero") == "recorded"
        one.commit()
    assert record(one, job, "first", first=first) == "recorded"
    requeued = start(other, finish, [job], "release").blocked()
    one.commit()
    assert requeued.result() == [job]
    assert value(other, "SELECT count(*) FROM pgqueue_step WHERE job_id = %s", job) == 2 - first


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.promise("step-lease")
def test_a_step_is_refused_when_recovery_came_first(connect: Connect, first: bool) -> None:
    one, other = connect(), connect(autocommit=True)
    job = running(one)
    assert finish(one, [job], "release") == [job]
    assert [row.id for row in claim(one, 1, lease=2)] == [job]
    recorded = start(other, record, job, "first", first=first).blocked()
    one.commit()
    assert recorded.result() == "lost"
    assert value(other, "SELECT count(*) FROM pgqueue_step") == 0


def test_two_steps_that_end_side_by_side_are_both_recorded(connect: Connect) -> None:
    one, other = connect(), connect(autocommit=True)
    job = running(one)
    assert record(one, job, "first") == "recorded"
    second = start(other, record, job, "second").blocked()  # both believe to be the first
    one.commit()
    assert second.result() == "recorded"


def test_later_steps_do_not_wait_for_each_other(connect: Connect) -> None:
    one, other = connect(), connect(autocommit=True)
    job = running(one)
    record(one, job, "first")
    one.commit()
    assert record(one, job, "second", first=False) == "recorded"
    assert record(other, job, "third", first=False) == "recorded"  # does not wait
    one.commit()


def test_a_cancel_of_a_job_that_goes_to_sleep_cancels_it(connect: Connect) -> None:
    one, other = connect(), connect(autocommit=True)
    job = running(one)
    wait(other, job)
    assert cancel(one, [job]) == 1
    asleep = start(other, suspend, job).blocked()
    one.commit()
    assert asleep.result() == [job]
    assert statuses(other) == {job: "cancelled"}
    assert value(other, "SELECT count(*) FROM pgqueue_step") == 0
