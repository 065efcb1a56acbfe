"""Maintenance beside workers and users: the rotation of history, statistics, and groups of failures."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Thread

import psycopg
import pytest

from django_pgqueue.models import FailureGroup, Ring
from django_pgqueue.monitoring.spans import totals
from tests.support.figures import count, counted, fold, forget, note, roll_up
from tests.support.jobs import add, claim, finish, live, over, retry, rotate, statuses, value
from tests.support.sessions import Connect, Connection, behind, open_raw, start

pytestmark = pytest.mark.django_db(transaction=True)

# Shelf 1 is the current one, so a rotation empties shelf 2.


@pytest.fixture
def patient_rotation(transactional_db: None) -> Iterator[None]:
    """Let the rotation wait for seconds instead of 50 ms, so that a test can run something in between."""
    with open_raw() as owner:
        owner.execute("ALTER FUNCTION _pgqueue_rotate() SET lock_timeout = '20s'")
        yield
        owner.execute("ALTER FUNCTION _pgqueue_rotate() SET lock_timeout = '50ms'")


def test_a_retry_that_meets_a_rotation_waits_and_finds_nothing(one: Connection, other: Connection) -> None:
    gone = over(other, 2, "8 days")
    (kept,) = over(other, 1, "1 day")
    assert rotate(one) == "emptied shelf 2"
    assert behind(one, other, retry, [*gone, kept]) == 1
    assert live(other) == {kept: "pending"}
    assert statuses(other) == {kept: "pending"}


def test_a_rotation_gives_way_to_a_retry(connect: Connect) -> None:
    # It gives way only because of its own lock timeout. Without one, it would wait until it is cancelled.
    one = connect()
    other = connect(autocommit=True, options="-c lock_timeout=0 -c statement_timeout=20s")
    job, neighbor = over(other, 2, "8 days", 2)
    assert retry(one, [job]) == 1
    assert rotate(other) == "gave way to a reader of shelf 2"
    one.commit()
    assert statuses(other) == {job: "pending", neighbor: "done"}
    assert rotate(other) == "emptied shelf 2"
    assert statuses(other) == {job: "pending"}


@pytest.mark.usefixtures("patient_rotation")
def test_a_young_job_that_arrives_between_check_and_lock_is_not_dropped(
    one: Connection, other: Connection
) -> None:
    over(other, 2, "8 days")
    # A finish has read the ring before it advanced. It commits late, to a shelf that is about to be emptied.
    (young,) = over(one, 2, "1 minute")
    assert behind(one, other, rotate) == "waiting for shelf 2"
    assert young in statuses(other)


@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
def test_a_rotation_refuses_a_snapshot_older_than_its_lock(connect: Connect, isolation: str) -> None:
    one = connect(options=f"-c default_transaction_isolation={isolation.replace(' ', chr(92) + ' ')}")
    with pytest.raises(psycopg.errors.InvalidTransactionState, match="only under READ COMMITTED"):
        rotate(one)


def test_only_one_rotation_at_a_time(one: Connection, other: Connection) -> None:
    over(other, 2, "8 days")
    assert rotate(one) == "emptied shelf 2"
    assert rotate(other) == "busy"
    one.commit()
    assert rotate(other) == "nothing to do"
    assert value(other, "SELECT current FROM pgqueue_ring") == Ring.objects.get().current == 1


def test_two_retries_at_once_bring_a_job_back_once(one: Connection, other: Connection) -> None:
    jobs = over(other, 1, "1 day", 3) + over(other, 9, "1 day", 3, status="failed")
    assert retry(one, jobs) == 6
    assert behind(one, other, retry, jobs[::-1]) == 0
    assert live(other) == dict.fromkeys(jobs, "pending")
    assert value(other, "SELECT count(*) FROM pgqueue_job") == 6


# -- statistics


@pytest.fixture
def at(other: Connection) -> str:
    """The time of a test. All that it counts is in the same minutes, though one may begin while it runs."""
    return str(value(other, "SELECT now()::text"))


def test_a_minute_that_a_worker_adds_to_is_left_for_later(
    one: Connection, other: Connection, at: str
) -> None:
    count(other, [5, 6], 1, at=at)
    count(one, [5], 2, at=at)
    assert start(other, roll_up).result() == 1, "it waits for no row that the worker has locked"
    one.commit()
    assert roll_up(other) == 1
    assert set(counted(other).values()) == {(4, 4)}


def test_a_worker_that_meets_a_minute_in_upkeep_makes_another_row(
    one: Connection, other: Connection, at: str
) -> None:
    count(other, [5], 1, at=at)
    assert roll_up(one) == 1
    behind(one, other, count, [5], 2, at=at)
    assert set(counted(other).values()) == {(3, 3)}
    assert roll_up(other) == 1
    assert set(counted(other).values()) == {(3, 3)}


def test_upkeep_that_fails_leaves_everything_as_it_was(one: Connection, other: Connection, at: str) -> None:
    count(other, [5], 1, at=at)
    assert roll_up(one) == 1
    behind(one, other, count, [5], 2, at=at, end="rollback")
    assert set(counted(other).values()) == {(3, 3)}


def test_one_supervisor_rolls_up_at_a_time_and_none_waits(one: Connection, other: Connection) -> None:
    count(other, [5, 6], 1)
    assert roll_up(one, 1) == 1
    assert start(other, roll_up).result() == 0
    one.commit()
    assert roll_up(other) == 1


def test_counts_of_a_scrape_never_go_back(connect: Connect) -> None:
    """Two workers add to the same minutes while maintenance rolls them up and a scrape reads."""
    workers, maintenance = [connect(autocommit=True) for _ in range(2)], connect(autocommit=True)

    def add(connection: Connection) -> None:
        for _ in range(100):
            count(connection, [3, 4])

    threads = [Thread(target=add, args=(connection,)) for connection in workers]
    for thread in threads:
        thread.start()
    seen = [0]
    while any(thread.is_alive() for thread in threads):
        roll_up(maintenance)
        seen.append(sum(total.done for total in totals("default")))
    assert seen == sorted(seen)
    roll_up(maintenance)
    assert set(counted(maintenance).values()) == {(400, 400)}


# -- failures

ERROR = '{"class": "app.Broken"}'


def mute(connection: Connection) -> int:
    muted = "UPDATE pgqueue_failure_group SET muted_at = now() WHERE fingerprint = 'f' AND muted_at IS NULL"
    return connection.execute(muted).rowcount


def report_failure(connection: Connection, job: int) -> list[int]:
    return finish(connection, [job], "failed", error=ERROR, fingerprint="f")


def test_failures_of_one_group_are_reported_side_by_side(connect: Connect) -> None:
    """No report_failure waits for another one, nor for maintenance, which holds the row of the group."""
    one, other, maintenance = connect(), connect(autocommit=True), connect()
    note(other)
    assert fold(maintenance) == 1
    first, second = add(other, 2)
    assert len(claim(other)) == 2
    assert report_failure(one, first) == [first]
    assert start(other, report_failure, second).result() == [second]
    one.commit()
    maintenance.commit()
    assert fold(other) == 2
    assert FailureGroup.objects.get().failed == 3


def test_a_report_that_is_rolled_back_leaves_no_failure(one: Connection, other: Connection) -> None:
    [job] = add(other)
    claim(other)
    report_failure(one, job)
    one.rollback()
    assert fold(other) == 0
    assert report_failure(other, job) == [job]
    assert fold(other) == 1


def test_one_supervisor_groups_failures_at_a_time_and_none_waits(one: Connection, other: Connection) -> None:
    for fingerprint in ("f", "g"):
        note(other, fingerprint)
    assert fold(one, limit=1) == 1
    assert start(other, fold).result() == 0
    assert start(other, forget).result() == 0
    one.commit()
    assert fold(other) == 1


def test_a_group_is_muted_while_a_change_arrives(one: Connection, other: Connection) -> None:
    """Whoever comes second waits: a change that came before the mute is known to it, a later one ends it."""
    note(other)
    fold(other)
    assert mute(one) == 1
    note(other, version="v2")
    assert behind(one, other, fold) == 1
    assert FailureGroup.objects.get().muted_at is None

    other.autocommit = False
    note(other, version="v3")
    fold(other)
    muting = start(one, mute).blocked()
    other.commit()
    assert muting.result() == 1
    one.commit()
    assert FailureGroup.objects.get().muted_at is not None


def test_a_group_that_somebody_mutes_is_not_forgotten_in_between(one: Connection, other: Connection) -> None:
    note(other, ago="100 days")
    fold(other)
    mute(one)
    assert start(other, forget).result() == 3, "only the counts of quarters, hours and days"
    one.commit()
    assert FailureGroup.objects.get().muted_at is not None
    forget(other)
    assert not FailureGroup.objects.exists()
