"""Batches, while members end, are added, or are retried."""

from __future__ import annotations

import json
from collections.abc import Iterator

import psycopg
import pytest

from tests.support.flows import (
    after,
    batch_call,
    close,
    counts,
    maintenance,
    members,
    open_batch,
    outcome,
    status,
)
from tests.support.jobs import add, cancel, claim, finish, retry
from tests.support.sessions import Connect, Connection, start

from .test_flows import patience

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def patient(connect: Connect) -> Iterator[None]:
    """Those who wait for the row of a batch do so until the test ends the wait, on a slow machine, too."""
    yield from patience(connect, "_pgqueue_lock_batches", "15s")


@pytest.fixture
def hasty(connect: Connect) -> Iterator[None]:
    """They give up at once."""
    yield from patience(connect, "_pgqueue_lock_batches", "1ms")


def running(connection: Connection, count: int, *, is_open: bool = False) -> tuple[int, list[int]]:
    """A batch whose members worker 1 has claimed under lease 1."""
    batch, jobs = open_batch(connection, count, is_open=is_open)
    assert [row.id for row in claim(connection)] == jobs
    connection.commit()
    return batch, jobs


@pytest.mark.parametrize("end", [finish, cancel])
@pytest.mark.promise("batch-once")
def test_the_last_two_members_end_at_once(connect: Connect, end: object) -> None:
    one, other = connect(), connect(autocommit=True)
    batch, (first, second) = open_batch(one, 2)
    assert [row.id for row in claim(one, 2 if end is finish else 1)] == (
        [first, second] if end is finish else [first]
    )
    callback = after(one, [batch], "run")
    one.commit()
    ending, last = (first, second) if end is finish else (second, first)
    assert callable(end)
    assert end(one, [ending])
    late = start(other, finish, [last]).blocked()
    one.commit()
    assert late.result() == [last]
    assert status(other, callback) == "pending"


@pytest.mark.promise("after-ends-at-once")
def test_the_last_two_members_are_both_on_their_way_to_history(connect: Connect, patient: None) -> None:
    """Neither finds a member that proves that there are others, so both look under the lock of the batch."""
    one, other = connect(), connect()
    batch, (first, second) = running(one, 2)
    for connection, job in ((one, first), (other, second)):
        connection.execute("DELETE FROM pgqueue_job_live WHERE id = %s", (job,))
    settle(one, first, batch)
    last = start(other, settle, second, batch).blocked()
    one.commit()
    last.result()
    assert (outcome(other, batch), counts(other, batch)) == ("done", (2, 0, 2, 0, 0))


def settle(connection: Connection, job: int, batch: int) -> None:
    connection.execute("SELECT _pgqueue_settle(ARRAY[ROW(%s, 'done', 4, %s)::pgqueue_ended])", (job, batch))


def test_a_member_is_added_while_the_last_one_ends(connect: Connect) -> None:
    one, other = connect(), connect(autocommit=True)
    batch, jobs = running(one, 1)
    (added,) = members(one, batch)
    assert finish(other, jobs) == jobs, "it does not wait"
    assert outcome(other, batch) == ""
    one.commit()
    assert maintenance(other) == (0, 0)
    claim(other)
    finish(other, [added])
    assert outcome(other, batch) == "done"


def test_upkeep_ends_a_batch_whose_new_members_were_rolled_back(connect: Connect) -> None:
    one, other = connect(), connect(autocommit=True)
    batch, jobs = running(one, 1)
    members(one, batch)
    finish(other, jobs)
    one.rollback()
    assert outcome(other, batch) == ""
    assert maintenance(other) == (1, 0)
    assert outcome(other, batch) == "done"


@pytest.mark.parametrize("how", ["end", "cancel"])
@pytest.mark.promise("batch-finished")
def test_a_member_that_comes_while_the_batch_ends_is_refused(connect: Connect, how: str) -> None:
    one, other = connect(), connect(autocommit=True)
    batch, jobs = running(one, 1)
    if how == "end":
        finish(one, jobs)
    else:
        batch_call(one, "cancel", batch)
    late = start(other, members, batch).blocked()
    one.commit()
    with pytest.raises(psycopg.IntegrityError, match=f"batch {batch} is over") as refusal:
        late.result()
    assert refusal.value.sqlstate == "23Q05"


def test_a_cancel_of_a_batch_waits_for_members_that_are_being_added(connect: Connect) -> None:
    one, other = connect(), connect(autocommit=True)
    batch, _ = open_batch(other, is_open=True)
    (added,) = members(one, batch)
    cancelled = start(other, batch_call, "cancel", batch).blocked()
    one.commit()
    assert cancelled.result() == 1
    assert (status(other, added), outcome(other, batch)) == ("cancelled", "cancelled")


def test_the_last_member_ends_while_the_batch_is_closed(connect: Connect, patient: None) -> None:
    one, other = connect(), connect(autocommit=True)
    batch, jobs = running(one, 1, is_open=True)
    assert close(one, batch)
    last = start(other, finish, jobs).blocked()
    one.commit()
    assert last.result() == jobs
    assert outcome(other, batch) == "done"


def test_a_batch_is_closed_while_its_last_member_ends(connect: Connect) -> None:
    one, other = connect(), connect(autocommit=True)
    batch, jobs = running(one, 1, is_open=True)
    finish(one, jobs)
    closed = start(other, close, batch).blocked()
    one.commit()
    assert closed.result()
    assert outcome(other, batch) == "done"


def test_a_member_is_retried_while_the_last_one_ends(connect: Connect) -> None:
    one, other = connect(), connect(autocommit=True)
    batch, jobs = running(one, 2)
    finish(other, jobs[:1], "failed")
    assert retry(one, jobs[:1]) == 1
    assert finish(other, jobs[1:]) == jobs[1:]
    assert outcome(other, batch) == ""
    one.commit()
    claim(other)
    finish(other, jobs[:1])
    assert (outcome(other, batch), counts(other, batch)) == ("done", (2, 0, 2, 0, 0))


def test_a_batch_ends_while_a_member_is_retried(connect: Connect) -> None:
    one, other = connect(), connect(autocommit=True)
    batch, jobs = running(one, 2)
    finish(other, jobs[:1], "failed")
    finish(one, jobs[1:])
    again = start(other, retry, jobs[:1]).blocked()
    one.commit()
    assert again.result() == 1
    assert (outcome(other, batch), counts(other, batch)) == ("", (2, 1, 1, 0, 0))


def test_a_batch_ends_while_something_is_enqueued_after_it(connect: Connect, patient: None) -> None:
    one, other = connect(), connect(autocommit=True)
    batch, jobs = running(one, 1)
    callback = after(one, [batch])
    one.execute("SET CONSTRAINTS pgqueue_attach IMMEDIATE")
    last = start(other, finish, jobs).blocked()
    one.commit()
    assert last.result() == jobs
    assert status(other, callback) == "pending"


def test_something_is_enqueued_after_a_batch_that_is_ending(connect: Connect) -> None:
    one, other = connect(), connect(autocommit=True)
    batch, jobs = running(one, 1)
    finish(one, jobs)
    late = start(other, after, [batch]).blocked()
    one.commit()
    assert status(other, late.result()) == "pending"


def test_a_batch_that_somebody_holds_for_long_is_left_to_upkeep(connect: Connect, hasty: None) -> None:
    one, other = connect(), connect(autocommit=True)
    batch, jobs = running(one, 1)
    one.execute("SELECT FROM pgqueue_batch FOR SHARE")
    assert finish(other, jobs) == jobs
    one.commit()
    assert (outcome(other, batch), maintenance(other), outcome(other, batch)) == ("", (1, 0), "done")


def keyed(connection: Connection, batch: int | None = None) -> int:
    """Enqueue a call with a unique key that holds while its job runs."""
    options = {"unique_key": "k", "unique_scope": "live"} | ({} if batch is None else {"batch": batch})
    (job,) = add(connection, options=json.dumps(options))
    return job


def test_a_call_meets_a_job_with_its_unique_key_that_ends(connect: Connect) -> None:
    one, other = connect(), connect(autocommit=True)
    job = keyed(other)
    assert [row.id for row in claim(other)] == [job]
    batch, _ = open_batch(other, 0, is_open=True)
    one.execute("SELECT FROM pgqueue_job_live WHERE id = %s FOR UPDATE", (job,))
    call = start(other, keyed, batch).blocked()
    assert finish(one, [job]) == [job]
    one.commit()
    assert call.result() == job
    close(one, batch)
    assert (outcome(one, batch), counts(one, batch)) == ("done", (0, 0, 0, 0, 0))


def test_a_job_ends_that_a_call_with_its_unique_key_has_met(connect: Connect) -> None:
    one, other = connect(), connect(autocommit=True)
    job = keyed(other)
    assert [row.id for row in claim(other)] == [job]
    batch, _ = open_batch(other, 0, is_open=True)
    assert keyed(one, batch) == job
    end = start(other, finish, [job]).blocked()
    close(one, batch)
    one.commit()
    assert end.result() == [job]
    assert (outcome(one, batch), counts(one, batch)) == ("done", (1, 0, 1, 0, 0))
