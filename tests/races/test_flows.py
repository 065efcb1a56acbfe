"""Jobs that wait for others, while these end, are cancelled, or are retried."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.support.flows import after, attach, edges, maintenance, reason, status
from tests.support.jobs import add, cancel, claim, edit, finish, retry, value
from tests.support.sessions import Connect, Connection, start

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def patient(connect: Connect) -> Iterator[None]:
    """Those who wait for the row of a child do so until the test ends the wait, on a slow machine, too."""
    yield from patience(connect, "_pgqueue_lock_children", "15s")


@pytest.fixture
def hasty(connect: Connect) -> Iterator[None]:
    """They give up at once."""
    yield from patience(connect, "_pgqueue_lock_children", "1ms")


def patience(connect: Connect, function: str, timeout: str) -> Iterator[None]:
    one = connect(autocommit=True)
    settings = value(one, "SELECT proconfig FROM pg_proc WHERE proname = %s", function)
    assert "lock_timeout=250ms" in settings
    one.execute(f"ALTER FUNCTION {function} SET lock_timeout = '{timeout}'")
    yield
    one.execute(f"ALTER FUNCTION {function} SET lock_timeout = '250ms'")


def running(connection: Connection, count: int = 1) -> list[int]:
    """Jobs that worker 1 has claimed under lease 1."""
    jobs = add(connection, count)
    assert [row.id for row in claim(connection)] == jobs
    connection.commit()
    return jobs


def attached(connection: Connection, parents: list[int], if_failed: str = "hold") -> int:
    child = after(connection, parents, if_failed)
    connection.commit()
    return child


@pytest.mark.parametrize("end", [finish, cancel])
@pytest.mark.promise("after")
def test_the_last_two_parents_end_at_once(connect: Connect, end: object) -> None:
    one, other = connect(), connect(autocommit=True)
    first, second = running(one, 2)
    (waiting,) = add(other)
    child = attached(one, [first, second] if end is finish else [waiting, second], "run")
    assert callable(end)
    assert end(one, [first] if end is finish else [waiting])
    last = start(other, finish, [second]).blocked()
    one.commit()
    assert last.result() == [second]
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
    last = start(other, unblock, child).blocked()
    one.commit()
    assert last.result() == 1
    assert status(other, child) == "pending"


def unblock(connection: Connection, child: int) -> int:
    return int(value(connection, "SELECT _pgqueue_unblock(ARRAY[%s::bigint])", child))


@pytest.mark.parametrize(("kind", "then"), [("done", "pending"), ("failed", "cancelled")])
def test_a_parent_that_ends_while_something_is_enqueued_after_it(
    connect: Connect, kind: str, then: str
) -> None:
    one, other = connect(), connect(autocommit=True)
    (parent,) = running(one)
    child = after(one, [parent], "cancel")
    attach(one)
    late = start(other, finish, [parent], kind).blocked()
    one.commit()
    assert late.result() == [parent]
    assert status(other, child) == then


@pytest.mark.parametrize(("kind", "then"), [("done", "pending"), ("failed", "cancelled")])
@pytest.mark.promise("after")
def test_something_is_enqueued_after_a_parent_that_is_ending(connect: Connect, kind: str, then: str) -> None:
    one, other = connect(), connect(autocommit=True)
    (parent,) = running(one)
    finish(one, [parent], kind)
    late = start(other, after, [parent], "cancel").blocked()
    one.commit()
    assert status(other, late.result()) == then


def test_a_transaction_that_stays_open_does_not_hold_up_the_end_of_a_parent(connect: Connect) -> None:
    one, other = connect(), connect(autocommit=True)
    (parent,) = running(one)
    child = after(one, [parent])
    assert finish(other, [parent]) == [parent]
    one.commit()
    assert status(other, child) == "pending"


def test_a_failed_parent_is_retried_while_something_is_enqueued_after_it(connect: Connect) -> None:
    one, other = connect(), connect(autocommit=True)
    (parent,) = running(one)
    finish(other, [parent], "failed")
    child = after(one, [parent])
    attach(one)
    again = start(other, retry, [parent]).blocked()
    one.commit()
    assert again.result() == 1
    claim(other)
    assert finish(other, [parent]) == [parent]
    assert status(other, child) == "pending"


def test_something_is_enqueued_after_a_failed_parent_that_is_being_retried(connect: Connect) -> None:
    one, other = connect(), connect(autocommit=True)
    (parent,) = running(one)
    finish(other, [parent], "failed")
    retry(one, [parent])
    late = start(other, after, [parent]).blocked()
    one.commit()
    child = late.result()
    claim(other)
    assert finish(other, [parent]) == [parent]
    assert status(other, child) == "pending"


def test_a_child_that_was_cancelled_is_retried_while_its_parent_ends(connect: Connect) -> None:
    one, other = connect(), connect(autocommit=True)
    (parent,) = running(one)
    child = attached(one, [parent])
    assert cancel(other, [child]) == 1
    finish(one, [parent])
    again = start(other, retry, [child]).blocked()
    one.commit()
    assert again.result() == 1
    assert status(other, child) == "pending"


def test_a_parent_ends_while_its_cancelled_child_is_retried(connect: Connect) -> None:
    one, other = connect(), connect(autocommit=True)
    (parent,) = running(one)
    child = attached(one, [parent])
    assert cancel(other, [child]) == 1
    assert retry(one, [child]) == 1
    last = start(other, finish, [parent]).blocked()
    one.commit()
    assert last.result() == [parent]
    assert status(other, child) == "pending"


def test_a_cascade_waits_for_nobody_and_leaves_a_locked_child_to_upkeep(connect: Connect) -> None:
    one, other = connect(), connect(autocommit=True)
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


def test_a_child_that_somebody_holds_for_long_is_left_to_upkeep(connect: Connect, hasty: None) -> None:
    one, other = connect(), connect(autocommit=True)
    (parent,) = running(one)
    held, free = attached(one, [parent]), attached(one, [parent])
    edit(one, [held], priority=3)
    assert finish(other, [parent]) == [parent]
    assert status(other, held, free) == "blocked pending"
    one.commit()
    assert maintenance(other) == (0, 1)
    assert status(other, held) == "pending"


@pytest.mark.promise("flow-repair")
def test_a_cancel_under_repeatable_read_does_not_overlook_the_end_of_another_parent(connect: Connect) -> None:
    one, other = connect(), connect(autocommit=True)
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


def test_upkeep_settles_what_was_deleted_by_hand(connect: Connect) -> None:
    one = connect(autocommit=True)
    parents = running(one, 3)
    cut, orphan = after(one, parents[:1]), after(one, parents[1:2])
    one.execute("DELETE FROM pgqueue_edge WHERE child_id = %s", (cut,))
    one.execute("DELETE FROM pgqueue_job WHERE id = %s", (parents[1],))
    assert maintenance(one) == (0, 2)
    assert (status(one, cut, orphan), edges(one)) == ("pending cancelled", [])


def test_a_session_that_is_killed_in_the_middle_has_settled_nothing(connect: Connect) -> None:
    one, other = connect(), connect(autocommit=True)
    parents = running(one, 2)
    child = attached(one, parents)
    finish(one, parents[:1])
    last = start(other, finish, parents[1:]).blocked()
    with connect(autocommit=True) as killer:
        killer.execute("SELECT pg_terminate_backend(%s)", (one.info.backend_pid,))
    with pytest.raises(psycopg.OperationalError):
        one.commit()
    assert last.result() == parents[1:]
    assert status(other, child) == "blocked"
    assert finish(other, parents[:1]) == parents[:1], "the worker reports again"
    assert status(other, child) == "pending"
