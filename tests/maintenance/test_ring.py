from __future__ import annotations

from collections.abc import Iterator
from threading import Event

import psycopg
import pytest

from django_pgqueue.models import Ring
from tests.support.history import fresh_ring
from tests.support.jobs import add, cancel, claim, finish, over, rotate, statuses, value
from tests.support.sessions import Connect, Connection, start
from tests.support.waiting import until

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def one(connect: Connect) -> Iterator[Connection]:
    """A connection; the ring is new."""
    connection = connect(autocommit=True)
    with fresh_ring(connection):
        yield connection


def ring(**changes: object) -> None:
    assert Ring.objects.update(**changes) == 1


def shelf_of(connection: Connection, job: int) -> int:
    return int(value(connection, "SELECT shelf FROM pgqueue_job WHERE id = %s", job))


def since_ago(connection: Connection, age: str) -> None:
    connection.execute("UPDATE pgqueue_ring SET since = clock_timestamp() - %s::interval", (age,))


def test_a_turn_empties_the_next_shelf_first_then_moves_on(one: Connection) -> None:
    old = over(one, 2, "7 days 1 minute", 2)
    kept = over(one, 3, "8 days") + over(one, 8, "8 days") + over(one, 1, "1 day")
    since_ago(one, "29 hours")
    assert rotate(one) == "emptied shelf 2"
    assert not set(old) & statuses(one).keys()
    assert rotate(one) == "moved to shelf 2"
    assert Ring.objects.get().current == 2
    assert rotate(one) == "emptied shelf 3"
    assert rotate(one) == "nothing to do"
    assert statuses(one).keys() == set(kept[1:])


@pytest.mark.promise("retention")
def test_the_ring_stays_on_a_shelf_for_a_sixth_of_the_retention(one: Connection) -> None:
    since_ago(one, "27 hours 59 minutes")
    assert rotate(one) == "nothing to do"
    since_ago(one, "28 hours 1 minute")
    assert rotate(one) == "moved to shelf 2"


@pytest.mark.promise("retention")
def test_one_young_job_keeps_its_shelf(one: Connection) -> None:
    over(one, 2, "9 days", 5)
    over(one, 2, "6 days 23 hours")
    since_ago(one, "29 hours")
    assert rotate(one) == "waiting for shelf 2"
    assert Ring.objects.get().current == 1
    assert len(statuses(one)) == 6


def test_the_ring_goes_round(one: Connection) -> None:
    ring(current=8)
    since_ago(one, "29 hours")
    assert rotate(one) == "moved to shelf 1"
    assert Ring.objects.get().current == 1


def test_a_clock_that_was_set_back_starts_the_shelf_anew(one: Connection) -> None:
    since_ago(one, "-3 days")
    assert rotate(one) == "restarted: the clock was set back"
    assert value(one, "SELECT clock_timestamp() - since < interval '1 minute' FROM pgqueue_ring")


def test_what_is_over_goes_to_the_current_shelf(one: Connection) -> None:
    first, second = add(one, 2)
    claim(one, 1)
    assert finish(one, [first]) == [first]
    ring(current=4)
    assert cancel(one, [second]) == 1
    assert (shelf_of(one, first), shelf_of(one, second)) == (1, 4)


def test_enqueue_claim_finish_and_cancel_go_on_while_a_shelf_is_emptied(
    one: Connection, connect: Connect
) -> None:
    worker, reader, rotation = connect(autocommit=True), connect(autocommit=True), connect()
    done, failed, retried, asked = add(one, 4)
    claim(one)
    over(one, 2, "8 days")
    assert rotate(rotation) == "emptied shelf 2"  # and holds its lock until the commit
    read = start(reader, value, "SELECT count(*) FROM pgqueue_job_past_2").blocked()
    waiting, new = add(worker, 2)
    assert finish(worker, [done]) == [done]
    assert finish(worker, [failed], "failed") == [failed]
    assert finish(worker, [retried], "retry") == [retried]
    worker.execute("CALL _pgqueue_finish_one(%s, 1, 'snooze')", (asked,))
    assert cancel(worker, [waiting]) == 1
    assert [row.id for row in claim(worker)] == [retried, asked, new]
    assert cancel(worker, [asked]) == 1
    first_due = "SELECT * FROM _pgqueue_first_due(NULL, '{}', '{}', '{}', '{}', '{}', '{}')"
    assert worker.execute(first_due).fetchall() == []
    rotation.commit()
    assert read.result() == 0
    assert statuses(one) == {
        done: "done", failed: "failed", retried: "running", asked: "running", new: "running",
        waiting: "cancelled",
    }  # fmt: skip


def test_a_rotation_gives_way_to_a_reader(one: Connection, connect: Connect) -> None:
    reader = connect()
    over(one, 2, "8 days")
    assert statuses(reader)
    # It gives way only because of its own lock timeout. Without one, it would wait until it is cancelled.
    one.execute("SET lock_timeout = 0")
    one.execute("SET statement_timeout = '60s'")
    assert rotate(one) == "gave way to a reader of shelf 2"
    reader.commit()
    assert rotate(one) == "emptied shelf 2"


def test_a_reader_that_comes_behind_a_waiting_rotation_waits_for_50_ms(
    one: Connection, connect: Connect
) -> None:
    first, second, maintenance = connect(), connect(autocommit=True), connect(autocommit=True)
    over(one, 2, "8 days")
    assert value(one, "SELECT proconfig::text FROM pg_proc WHERE proname = '_pgqueue_rotate'").count(
        "lock_timeout=50ms"
    )
    assert statuses(first)  # this one stays open: every rotation waits for it and gives way
    maintenance.execute("SET lock_timeout = 0")
    enough = Event()

    def rotate_on(connection: Connection) -> set[str]:
        said = {rotate(connection)}
        while not enough.is_set():
            said.add(rotate(connection))
        return said

    rotations = start(maintenance, rotate_on)
    blockers = "SELECT %s = ANY (pg_blocking_pids(%s))"
    pids = maintenance.info.backend_pid, second.info.backend_pid

    def waited_for_a_rotation() -> bool:
        """Read once. The reader must finish although `first` is still open."""
        reader, waited = start(second, statuses), False
        while not reader.is_finished:
            waited = waited or value(one, blockers, *pids)
        assert reader.result()
        return waited

    until(waited_for_a_rotation, seconds=60, what="a reader that came while a rotation waited")
    enough.set()
    assert rotations.result() == {"gave way to a reader of shelf 2"}


def test_a_rotation_that_has_nothing_to_empty_takes_no_lock(one: Connection, connect: Connect) -> None:
    reader = connect()
    over(one, 2, "1 day")
    assert statuses(reader)
    assert rotate(one) == "waiting for shelf 2"


def test_retain_says_what_was_there_before_and_only_if_it_changes(one: Connection) -> None:
    change = "SELECT retention::text, failed_retention::text FROM _pgqueue_retain(%s, %s, 1048576)"
    assert one.execute(change, ("7 days", "30 days")).fetchall() == []
    assert one.execute(change, ("1 day", "30 days")).fetchall() == [("7 days", "30 days")]
    assert one.execute(change, ("1 day", "2 days")).fetchall() == [("1 day", "30 days")]
    row = Ring.objects.get()
    assert (row.retention.days, row.failed_retention.days) == (1, 2)
    with pytest.raises(psycopg.errors.CheckViolation):
        one.execute(change, ("-1 day", "2 days"))


@pytest.mark.promise("no-history")
def test_a_retention_of_zero_keeps_nothing(one: Connection) -> None:
    over(one, 2, "1 second")
    one.execute("SELECT _pgqueue_retain('0', '0', 1048576)")
    first, second, third = add(one, 3)
    claim(one)
    assert finish(one, [first]) == [first]
    assert finish(one, [second], "failed") == [second]
    assert cancel(one, [third]) == 1
    assert finish(one, [third], "retry") == [third]
    assert len(statuses(one)) == 1
    assert rotate(one) == "emptied shelf 2"
    assert statuses(one) == {}
