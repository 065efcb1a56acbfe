"""Jobs that wait for others, and batches, while these end, grow, are cancelled, or are retried."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple

import psycopg
import pytest

from django_pgqueue.models import Queue
from tests.support.jobs import (
    add,
    after,
    attach,
    batch_call,
    cancel,
    claim,
    close,
    counts,
    edges,
    edit,
    finish,
    maintenance,
    members,
    open_batch,
    outcome,
    reason,
    retry,
    running,
    status,
    value,
)
from tests.support.sessions import Connect, Connection, behind, start

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def patient(connect: Connect) -> Iterator[None]:
    """Those who wait for a child or a batch do so until the test lets go, on a slow machine, too."""
    with patience(connect, "15s"):
        yield


@pytest.fixture
def hasty(connect: Connect) -> Iterator[list[str]]:
    """They give up at once. These are the settings with which they wait otherwise."""
    with patience(connect, "1ms") as settings:
        yield settings


@contextmanager
def patience(connect: Connect, timeout: str) -> Iterator[list[str]]:
    owner = connect(autocommit=True)
    functions = ["_pgqueue_lock_children", "_pgqueue_lock_batches"]
    query = "SELECT array_agg(proconfig::text) FROM pg_proc WHERE proname = ANY (%s)"
    settings: list[str] = value(owner, query, functions)
    for function in functions:
        owner.execute(f"ALTER FUNCTION {function} SET lock_timeout = '{timeout}'")
    yield settings
    for function in functions:
        owner.execute(f"ALTER FUNCTION {function} SET lock_timeout = '250ms'")


# -- a job that runs, alone or as the only member of a batch, and another that waits for it, or for the batch


@dataclass
class Flow:
    """What the verbs are about."""

    job: int
    batch: int | None
    child: int = 0


Verb = Callable[[Connection, Flow], Any]


def enqueues(if_failed: str) -> Verb:
    def verb(connection: Connection, flow: Flow) -> None:
        flow.child = after(connection, [flow.batch or flow.job], if_failed)
        attach(connection)

    return verb


def ends(kind: str) -> Verb:
    return lambda connection, flow: finish(connection, [flow.job], kind)


def retries(connection: Connection, flow: Flow) -> None:
    assert retry(connection, [flow.job]) == 1


def runs_again(connection: Connection, flow: Flow) -> None:
    claim(connection)
    assert finish(connection, [flow.job]) == [flow.job]


def cancels_child(connection: Connection, flow: Flow) -> None:
    assert cancel(connection, [flow.child]) == 1


def retries_child(connection: Connection, flow: Flow) -> None:
    assert retry(connection, [flow.child]) == 1


class Race(NamedTuple):
    """What was before, what the sessions do, what happens afterwards, and the child then."""

    before: tuple[Verb, ...]
    first: Verb
    second: Verb
    then: tuple[Verb, ...]
    child: str


HELD, FAILED = (enqueues("hold"), cancels_child), (ends("failed"),)
RACES = {
    "it is done while a job is enqueued after it": Race((), enqueues("cancel"), ends("done"), (), "pending"),
    "it fails while a job is enqueued after it": Race(
        (), enqueues("cancel"), ends("failed"), (), "cancelled"
    ),
    "a job is enqueued after what is being done": Race((), ends("done"), enqueues("cancel"), (), "pending"),
    "a job is enqueued after what is failing": Race((), ends("failed"), enqueues("cancel"), (), "cancelled"),
    "it is retried while a job is enqueued after it": Race(
        FAILED, enqueues("hold"), retries, (runs_again,), "pending"
    ),
    "a job is enqueued after what is being retried": Race(
        FAILED, retries, enqueues("hold"), (runs_again,), "pending"
    ),
    "a child that was cancelled is retried while it ends": Race(
        HELD, ends("done"), retries_child, (), "pending"
    ),
    "it ends while a child that was cancelled is retried": Race(
        HELD, retries_child, ends("done"), (), "pending"
    ),
}


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("of", ["job", "batch"])
@pytest.mark.parametrize("name", RACES)
@pytest.mark.promise("after")
def test_what_waits_starts_or_is_cancelled_whoever_comes_first(
    one: Connection, other: Connection, of: str, name: str
) -> None:
    race = RACES[name]
    batch, (job,) = open_batch(other, 1) if of == "batch" else (None, add(other))
    flow = Flow(job, batch)
    assert [row.id for row in claim(other)] == [job]
    for verb in race.before:
        verb(other, flow)
    race.first(one, flow)
    behind(one, other, race.second, flow)
    for verb in race.then:
        verb(other, flow)
    assert status(other, flow.child) == race.child


# -- jobs


def attached(connection: Connection, parents: list[int], if_failed: str = "hold") -> int:
    child = after(connection, parents, if_failed)
    connection.commit()
    return child


@pytest.mark.parametrize("of", ["parents", "members"])
@pytest.mark.parametrize("end", [finish, cancel])
@pytest.mark.promise("after", "batch-once")
def test_the_last_two_end_at_once(
    one: Connection, other: Connection, of: str, end: Callable[..., Any]
) -> None:
    batch, (first, second) = open_batch(other, 2) if of == "members" else (None, add(other, 2))
    child = after(other, [first, second] if batch is None else [batch], "run")
    assert len(claim(other, 2 if end is finish else 1)) == (2 if end is finish else 1)
    assert end(one, [second])
    assert behind(one, other, finish, [first]) == [first]
    assert (status(other, child), edges(other)) == ("pending", [])


@pytest.mark.promise("after-ends-at-once")
def test_the_last_two_parents_have_both_deleted_their_edges(connect: Connect, patient: None) -> None:
    """Neither finds an edge that proves that there are others, so both look under the lock of the child."""
    one, other = connect(), connect()
    parents = running(one, 2)
    child = attached(one, parents)
    for connection, parent in ((one, parents[0]), (other, parents[1])):
        connection.execute("DELETE FROM pgqueue_edge WHERE parent_id = %s", (parent,))
    assert unblock(one, child) == 0
    assert behind(one, other, unblock, child) == 1
    assert status(other, child) == "pending"


def unblock(connection: Connection, child: int) -> int:
    return int(value(connection, "SELECT _pgqueue_unblock(ARRAY[%s::bigint])", child))


def test_a_transaction_that_stays_open_does_not_hold_up_the_end_of_a_parent(
    one: Connection, other: Connection
) -> None:
    (parent,) = running(one)
    child = after(one, [parent])
    assert finish(other, [parent]) == [parent]
    one.commit()
    assert status(other, child) == "pending"


def test_a_parent_without_a_history_waits_with_its_end_for_what_is_enqueued_after_it(
    one: Connection, other: Connection
) -> None:
    """The commit could not know how it has ended."""
    Queue.objects.create(name="default", retention=timedelta(0))
    (parent,) = running(one)
    child = after(one, [parent])
    assert behind(one, other, finish, [parent]) == [parent]
    assert status(other, parent, child) == "gone pending"


def test_a_cascade_waits_for_nobody_and_leaves_a_locked_child_to_upkeep(
    one: Connection, other: Connection
) -> None:
    parents = running(one, 2)
    child = attached(one, parents)
    edit(one, [child], priority=3)
    assert finish(other, parents[:1], "cancelled") == parents[:1]
    assert status(other, child) == "blocked"
    one.commit()
    assert finish(other, parents[1:]) == parents[1:], "it does not let the child run"
    assert status(other, child) == "blocked"
    maintenance(other)
    assert (status(other, child), edges(other)) == ("cancelled", [])
    assert reason(other, child) == f"job {parents[0]}, after which it was enqueued, was cancelled"


def test_a_child_that_somebody_holds_for_long_is_left_to_upkeep(
    one: Connection, other: Connection, hasty: list[str]
) -> None:
    assert all("lock_timeout=250ms" in each for each in hasty)
    (parent,) = running(one)
    held, free = attached(one, [parent]), attached(one, [parent])
    edit(one, [held], priority=3)
    assert finish(other, [parent]) == [parent]
    assert status(other, held, free) == "blocked pending"
    one.commit()
    assert maintenance(other) == (0, 1)
    assert status(other, held) == "pending"


@pytest.mark.promise("flow-repair")
def test_a_cancel_under_repeatable_read_does_not_overlook_the_end_of_another_parent(
    one: Connection, other: Connection
) -> None:
    parents = [*running(one), *add(other)]
    child = attached(one, parents, "run")
    one.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    assert value(one, "SELECT count(*) FROM pgqueue_edge") == 2
    finish(other, parents[:1])
    with pytest.raises(psycopg.errors.SerializationFailure):
        cancel(one, parents[1:])
    one.rollback()
    assert cancel(other, parents[1:]) == 1
    assert status(other, child) == "pending"


def test_a_report_that_is_rolled_back_has_settled_nothing(one: Connection, other: Connection) -> None:
    parents = running(one, 2)
    child = attached(one, parents)
    finish(one, parents[:1])
    assert behind(one, other, finish, parents[1:], end="rollback") == parents[1:]
    assert status(other, child) == "blocked"
    assert finish(other, parents[:1]) == parents[:1], "the worker reports again"
    assert status(other, child) == "pending"


# -- batches


def running_batch(connection: Connection, count: int, *, is_open: bool = False) -> tuple[int, list[int]]:
    """A batch whose members worker 1 has claimed under lease 1."""
    batch, jobs = open_batch(connection, count, is_open=is_open)
    assert [row.id for row in claim(connection)] == jobs
    connection.commit()
    return batch, jobs


@pytest.mark.promise("after-ends-at-once")
def test_the_last_two_members_are_both_on_their_way_to_history(connect: Connect, patient: None) -> None:
    """Neither finds a member that proves that there are others, so both look under the lock of the batch."""
    one, other = connect(), connect()
    batch, (first, second) = running_batch(one, 2)
    for connection, job in ((one, first), (other, second)):
        connection.execute("DELETE FROM pgqueue_job_live WHERE id = %s", (job,))
    settle(one, first, batch)
    behind(one, other, settle, second, batch)
    assert (outcome(other, batch), counts(other, batch)) == ("done", (2, 0, 2, 0, 0))


def settle(connection: Connection, job: int, batch: int) -> None:
    connection.execute("SELECT _pgqueue_settle(ARRAY[ROW(%s, 'done', 4, %s)::pgqueue_ended])", (job, batch))


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_a_member_is_added_while_the_last_one_ends(one: Connection, other: Connection, end: str) -> None:
    batch, jobs = running_batch(one, 1)
    (added,) = members(one, batch)
    assert finish(other, jobs) == jobs, "it does not wait"
    assert outcome(other, batch) == ""
    getattr(one, end)()
    assert maintenance(other) == (int(end == "rollback"), 0)
    if end == "commit":
        claim(other)
        finish(other, [added])
    assert outcome(other, batch) == "done"


@pytest.mark.parametrize("how", ["end", "cancel"])
@pytest.mark.promise("batch-finished")
def test_a_member_that_comes_while_the_batch_ends_is_refused(
    one: Connection, other: Connection, how: str
) -> None:
    batch, jobs = running_batch(one, 1)
    if how == "end":
        finish(one, jobs)
    else:
        batch_call(one, "cancel", batch)
    with pytest.raises(psycopg.IntegrityError, match=f"batch {batch} is finished") as refusal:
        behind(one, other, members, batch)
    assert refusal.value.sqlstate == "23Q05"


def test_a_cancel_of_a_batch_waits_for_members_that_are_being_added(
    one: Connection, other: Connection
) -> None:
    batch, _ = open_batch(other, is_open=True)
    (added,) = members(one, batch)
    assert behind(one, other, batch_call, "cancel", batch) == 1
    assert (status(other, added), outcome(other, batch)) == ("cancelled", "cancelled")


@pytest.mark.parametrize("closes_first", [True, False])
def test_a_batch_is_closed_while_its_last_member_ends(
    one: Connection, other: Connection, patient: None, closes_first: bool
) -> None:
    batch, jobs = running_batch(one, 1, is_open=True)
    verbs: list[tuple[Callable[..., Any], Any]] = [(close, batch), (finish, jobs)]
    (first, of_first), (second, of_second) = verbs if closes_first else reversed(verbs)
    assert first(one, of_first)
    assert behind(one, other, second, of_second)
    assert outcome(other, batch) == "done"


def test_a_member_is_retried_while_the_last_one_ends(one: Connection, other: Connection) -> None:
    batch, jobs = running_batch(one, 2)
    finish(other, jobs[:1], "failed")
    assert retry(one, jobs[:1]) == 1
    assert finish(other, jobs[1:]) == jobs[1:]
    assert outcome(other, batch) == ""
    one.commit()
    claim(other)
    finish(other, jobs[:1])
    assert (outcome(other, batch), counts(other, batch)) == ("done", (2, 0, 2, 0, 0))


def test_a_batch_ends_while_a_member_is_retried(one: Connection, other: Connection) -> None:
    batch, jobs = running_batch(one, 2)
    finish(other, jobs[:1], "failed")
    finish(one, jobs[1:])
    assert behind(one, other, retry, jobs[:1]) == 1
    assert (outcome(other, batch), counts(other, batch)) == ("", (2, 1, 1, 0, 0))


def test_a_batch_that_somebody_holds_for_long_is_left_to_upkeep(
    one: Connection, other: Connection, hasty: list[str]
) -> None:
    batch, jobs = running_batch(one, 1)
    one.execute("SELECT FROM pgqueue_batch FOR SHARE")
    assert finish(other, jobs) == jobs
    one.commit()
    assert (outcome(other, batch), maintenance(other), outcome(other, batch)) == ("", (1, 0), "done")


def keyed(connection: Connection, batch: int | None = None) -> int:
    """Enqueue a call with a unique key that holds while its job runs."""
    options = {"unique_key": "k", "unique_scope": "live"} | ({} if batch is None else {"batch": batch})
    (job,) = add(connection, options=json.dumps(options))
    return job


def test_a_call_meets_a_job_with_its_unique_key_that_ends(one: Connection, other: Connection) -> None:
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


def test_a_job_ends_that_a_call_with_its_unique_key_has_met(one: Connection, other: Connection) -> None:
    job = keyed(other)
    assert [row.id for row in claim(other)] == [job]
    batch, _ = open_batch(other, 0, is_open=True)
    assert keyed(one, batch) == job
    end = start(other, finish, [job]).blocked()
    close(one, batch)
    one.commit()
    assert end.result() == [job]
    assert (outcome(one, batch), counts(one, batch)) == ("done", (1, 0, 1, 0, 0))
