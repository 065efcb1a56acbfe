"""The ring of history, what is kept for longer, and months of history with the real rotation.

The tests of months check at which multiple of the retention R a job is dropped. It is always at least 1.0,
and at most 1.2 in a steady state. After R was shortened, all jobs that are older than the new R are gone
within one new R. After R was lengthened, the ring does not advance until the shelves of the short R are old
enough: a job may reach 1.8 once, and 1.2 holds again two R later.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from datetime import timedelta

import psycopg
import pytest

from django_pgqueue.models import Job, Queue, Ring
from tests.support.figures import DAY, World, fresh_ring
from tests.support.jobs import add, cancel, claim, finish, over, rotate, statuses, value
from tests.support.sessions import Connect, Connection, start

pytestmark = pytest.mark.django_db

ZERO, YEAR = timedelta(0), timedelta(days=365)
KEPT = 9


@pytest.fixture
def one(one: Connection) -> Iterator[Connection]:
    """The connection of the test, whose ring is new. What it changes in a transaction is rolled back."""
    with fresh_ring(one) if one.autocommit else nullcontext():
        yield one


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
def test_the_ring_stays_on_a_shelf_for_a_sixth_of_the_retention_and_goes_round(one: Connection) -> None:
    Ring.objects.update(current=8)
    since_ago(one, "27 hours 59 minutes")
    assert rotate(one) == "nothing to do"
    since_ago(one, "28 hours 1 minute")
    assert rotate(one) == "moved to shelf 1"
    assert Ring.objects.get().current == 1


def test_a_clock_that_was_set_back_starts_the_shelf_anew(one: Connection) -> None:
    since_ago(one, "-3 days")
    assert rotate(one) == "restarted: the clock was set back"
    assert value(one, "SELECT clock_timestamp() - since < interval '1 minute' FROM pgqueue_ring")


@pytest.mark.promise("retention")
def test_one_young_job_keeps_its_shelf_which_is_not_locked(one: Connection, connect: Connect) -> None:
    over(one, 2, "9 days", 5)
    over(one, 2, "6 days 23 hours")
    since_ago(one, "29 hours")
    assert statuses(connect()), "its transaction stays open"
    assert rotate(one) == "waiting for shelf 2"
    assert Ring.objects.get().current == 1
    assert len(statuses(one)) == 6


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


# -- what is kept beside the ring


def ends(one: Connection, kind: str, queue_name: str = "mail") -> int | None:
    """Return the shelf on which a job of the queue ends, or None if the job is not kept."""
    (job,) = add(one, queue_name=queue_name)
    if kind == "cancelled before it ran":
        assert cancel(one, [job]) == 1
    else:
        one.execute(
            "UPDATE pgqueue_job_live SET status = 'running', lease = 1, attempts = 1 WHERE id = %s", (job,)
        )
        assert finish(one, [job], kind) == [job]
    found = Job.objects.filter(pk=job).first()
    return None if found is None else found.shelf


KINDS = ["done", "cancelled", "cancelled before it ran", "failed"]


@pytest.mark.parametrize(
    ("retention", "failed_retention", "shelves"),
    [
        (None, None, [1, 1, 1, KEPT]),
        (YEAR, None, [KEPT, KEPT, KEPT, KEPT]),
        (timedelta(hours=1), timedelta(hours=1), [KEPT, KEPT, KEPT, KEPT]),
        (ZERO, None, [None, None, None, KEPT]),
        (None, ZERO, [1, 1, 1, None]),
        (ZERO, ZERO, [None, None, None, None]),
    ],
)
def test_a_queue_says_what_it_keeps_done_and_failed_apart(
    one: Connection,
    retention: timedelta | None,
    failed_retention: timedelta | None,
    shelves: list[int | None],
) -> None:
    Queue.objects.create(name="mail", retention=retention, failed_retention=failed_retention)
    assert [ends(one, kind) for kind in KINDS] == shelves
    assert [ends(one, kind, "another") for kind in KINDS] == [1, 1, 1, KEPT]


def test_a_batch_over_several_queues(one: Connection) -> None:
    Queue.objects.create(name="none", retention=ZERO)
    Queue.objects.create(name="long", retention=YEAR)
    jobs = [pk for name in ("none", "long", "default") for pk in add(one, 2, queue_name=name)]
    one.execute("UPDATE pgqueue_job_live SET status = 'running', lease = 1")
    assert finish(one, jobs) == jobs, "accepted, kept or not"
    assert list(Job.objects.order_by("pk").values_list("shelf", flat=True)) == [KEPT, KEPT, 1, 1]


def sweep(one: Connection, limit: int = 1000) -> int:
    return int(value(one, "SELECT _pgqueue_sweep(%s)", limit))


@pytest.mark.promise("failed-retention")
def test_the_sweep_takes_what_is_too_old_for_its_queue_and_status(one: Connection) -> None:
    """It leaves the ring and the live jobs alone."""
    Queue.objects.create(name="long", retention=YEAR, failed_retention=timedelta(days=2))
    kept = {
        *over(one, 1, "9 days"),
        *over(one, 5, "90 days"),
        *add(one),
        *over(one, KEPT, "29 days", status="failed"),
        *over(one, KEPT, "6 days", status="done"),
        *over(one, KEPT, "6 days", status="cancelled", queue_name="another"),
        *over(one, KEPT, "364 days", status="done", queue_name="long"),
        *over(one, KEPT, "364 days", status="cancelled", queue_name="long"),
        *over(one, KEPT, "1 day", status="failed", queue_name="long"),
    }
    over(one, KEPT, "31 days", 2, status="failed")
    over(one, KEPT, "8 days", 3, status="done")
    over(one, KEPT, "8 days", status="cancelled", queue_name="another")
    over(one, KEPT, "366 days", status="cancelled", queue_name="long")
    over(one, KEPT, "3 days", 4, status="failed", queue_name="long")
    assert sweep(one) == 11
    assert statuses(one).keys() == kept
    assert sweep(one) == 0


def test_the_sweep_works_in_batches_oldest_first(one: Connection) -> None:
    young = over(one, KEPT, "31 days", 3, status="failed", queue_name="a")
    old = over(one, KEPT, "40 days", 4, status="failed", queue_name="a")
    other = over(one, KEPT, "40 days", 2, status="failed", queue_name="b")
    assert sweep(one, 3) == 3
    assert sweep(one, 1) == 1
    assert not set(old) & statuses(one).keys()
    assert sweep(one, 4) == 4
    assert statuses(one).keys() == {other[1]}
    assert set(young).isdisjoint(statuses(one))
    assert sweep(one, 4) == 1


@pytest.mark.promise("retention-of-a-queue")
def test_a_time_that_is_made_shorter_counts_for_what_is_kept_already(one: Connection) -> None:
    over(one, KEPT, "2 days", 2, queue_name="mail")
    queue = Queue.objects.create(name="mail", retention=YEAR)
    assert sweep(one) == 0
    queue.retention = ZERO
    queue.save()
    assert sweep(one) == 2


def test_the_sweep_does_not_wait_for_a_locked_row(one: Connection, connect: Connect) -> None:
    reader = connect()
    locked, _ = over(one, KEPT, "40 days", 2, status="failed")
    reader.execute("SELECT FROM pgqueue_job_kept WHERE id = %s FOR UPDATE", (locked,))
    assert start(one, sweep).result() == 1
    assert statuses(one).keys() == {locked}


# -- months


@pytest.fixture
def world(one: Connection) -> World:
    return World(one)


def youngest_dropped(world: World, since: float = 0) -> float:
    """The true age of the youngest job that was dropped after `since`."""
    return min(age for when, age in world.dropped if when > since)


def oldest_while(world: World, hours: float, step: float) -> float:
    """The age of the oldest job that was kept at any moment of that time."""
    oldest = 0.0
    for _ in range(round(hours / step)):
        world.run(step, step)
        oldest = max(oldest, world.oldest)
    return oldest


def test_seven_days_then_one_then_thirty(world: World) -> None:
    week, day, month, step = 7 * DAY, DAY, 30 * DAY, 4.0
    assert oldest_while(world, 3 * week, step) <= 1.2 * week + step
    assert youngest_dropped(world) >= week

    shortened = world.now
    world.retain(day)
    world.run(day, 1)
    assert oldest_while(world, 3 * day, 1) <= 1.2 * day + 1
    assert youngest_dropped(world, shortened) >= day

    lengthened = world.now
    world.retain(month)
    assert oldest_while(world, 2 * month, 12) <= 2 * month
    assert oldest_while(world, month, 12) <= 1.2 * month + 12
    assert youngest_dropped(world, lengthened) >= month


def test_a_stop_of_a_month(world: World) -> None:
    week, step = 7 * DAY, 4.0
    world.run(2 * week, step)
    world.run(30 * DAY, 10 * DAY, works=False)
    resumed = world.now
    world.run(1.2 * week, step)
    assert youngest_dropped(world) >= week
    assert oldest_while(world, week, step) <= 1.2 * week + step
    assert any(when > resumed and age > 30 * DAY for when, age in world.dropped)


@pytest.mark.parametrize("jump", [30.0, 10 * DAY])
@pytest.mark.promise("retention-and-clocks")
def test_a_clock_that_is_ahead_for_an_hour_costs_at_most_one_shelf(world: World, jump: float) -> None:
    week, step = 7 * DAY, 4.0
    world.run(2 * week, step)
    world.set_clock(jump)
    world.run(step, step)
    world.set_clock(-jump)
    world.run(3 * week, step)
    early = [age for _, age in world.dropped if age < week]
    assert len(early) <= week / 6 / step + 1
    assert min(early, default=week) >= week - week / 6 - step


@pytest.mark.parametrize(
    ("jump", "youngest"),
    [(10 * DAY, 7 * DAY * 5 / 6 - 4), (-10 * DAY, 7 * DAY)],
    ids=["put right", "set back"],
)
def test_a_clock_that_jumps_costs_no_job_more_than_a_sixth_of_its_time(
    world: World, jump: float, youngest: float
) -> None:
    week, step = 7 * DAY, 4.0
    world.run(2 * week, step)
    world.set_clock(jump)
    world.run(3 * week, step)
    assert youngest_dropped(world) >= youngest
    if jump < 0:
        assert oldest_while(world, week, step) <= 1.2 * week + step
