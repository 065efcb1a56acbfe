"""A worker falls asleep while jobs are enqueued: none of them may have to wait for its next poll."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta

import pytest
from django.utils import timezone

from django_pgqueue.postgres.session import Session, connect as connect_worker
from django_pgqueue.worker.options import WorkerOptions
from django_pgqueue.worker.producer.claimer import Claimer
from django_pgqueue.worker.producer.idle import Idle
from tests.support.jobs import add, after, claim, finish, over, retry, sql, value
from tests.support.sessions import Connect, Connection
from tests.support.waiting import until

pytestmark = pytest.mark.django_db(transaction=True)

LOCKS = """
    SELECT count(*) FROM pg_locks JOIN pg_database AS place ON place.oid = database
    WHERE locktype = 'advisory' AND datname = current_database()
"""
POLL = 30.0  # seconds: no job of these tests may have to wait for it


class Sleeper:
    """A worker without jobs, whose clock the test moves."""

    def __init__(self, *queues: str) -> None:
        self.session: Session = connect_worker("default")
        self.idle = Idle(queues, POLL)
        self.idle.connected()
        self.session.connection.execute(f'LISTEN "{self.session.value("SELECT _pgqueue_channel()")}"')
        self.claimer = Claimer(WorkerOptions(queues=queues), worker=1)
        self.now = 1000.0

    def look(self) -> bool:
        """Look for jobs once, after the clock has reached its time. Return whether there were any."""
        self.now += self.idle.seconds_left(self.now)
        due, next_due = self.claimer.search(self.session, thorough=True)
        if not due:
            self.idle.nothing_found(self.session, self.now, next_due)
        return due

    def announce(self) -> None:
        assert not self.look()
        assert self.idle.announced

    def sleep(self) -> None:
        """Look for jobs until the worker really sleeps."""
        self.announce()
        while self.idle.seconds_left(self.now) < 1:
            assert not self.look()

    def wake(self) -> None:
        """Find jobs, which releases the sleepers' lock."""
        self.idle.found()
        release = self.idle.release()
        assert release is not None
        self.session.run(release)
        assert self.idle.release() is None

    def heard(self, other: Connection) -> list[str]:
        """Return the notifications so far. `other` sends a last one, which shows that all have arrived."""
        other.execute("SELECT pg_notify(_pgqueue_channel(), 'end')")
        payloads: list[str] = []
        for notification in self.session.connection.notifies(timeout=20):
            if notification.payload == "end":
                return payloads
            payloads.append(notification.payload)
        raise AssertionError("the last notification has not come")


def in_seconds(seconds: int) -> datetime:
    return timezone.now() + timedelta(seconds=seconds)


@pytest.fixture
def sleeper(transactional_db: None) -> Iterator[Sleeper]:
    # Race: the server may still be about to end a session that slept in the test before.
    until(lambda: not sql(LOCKS), what="no other sleeper")
    one = Sleeper()
    yield one
    one.session.close()


@pytest.mark.promise("seen-at-the-commit")
def test_a_sleeper_is_woken_by_a_commit(sleeper: Sleeper, other: Connection) -> None:
    sleeper.sleep()
    with other.transaction():
        add(other, 3)
    assert sleeper.heard(other) == ["wake default"]
    assert sleeper.look()


def test_sleepers_are_looked_for_at_the_commit(sleeper: Sleeper, one: Connection, other: Connection) -> None:
    add(one)
    sleeper.sleep()
    one.commit()
    assert sleeper.heard(other) == ["wake default"]


def test_a_rollback_wakes_nobody_and_a_savepoint_that_is_rolled_back_changes_nothing(
    sleeper: Sleeper, other: Connection
) -> None:
    sleeper.sleep()
    with other.transaction(force_rollback=True):
        add(other)
    assert sleeper.heard(other) == []
    with other.transaction():
        with other.transaction(force_rollback=True):
            add(other)
        add(other)
    assert sleeper.heard(other) == ["wake default"]


def test_nobody_is_notified_while_nobody_sleeps_nor_by_itself(sleeper: Sleeper, other: Connection) -> None:
    sleeper.sleep()
    add(sleeper.session.connection)
    assert sleeper.heard(other) == []
    sleeper.wake()
    add(other, 3)
    assert sleeper.heard(other) == []


def test_a_job_whose_commit_saw_no_sleeper_is_found_by_the_looks(
    sleeper: Sleeper, one: Connection, other: Connection
) -> None:
    add(one)
    # The trigger runs now, as it does at the beginning of a commit. No worker sleeps yet.
    one.execute("SET CONSTRAINTS ALL IMMEDIATE")
    sleeper.announce()
    assert not sleeper.look()
    one.commit()
    assert sleeper.heard(other) == []
    assert sleeper.idle.seconds_left(sleeper.now) <= 0.2
    assert sleeper.look()


def test_a_job_whose_commit_left_the_notify_to_another_is_found_by_the_looks(
    sleeper: Sleeper, other: Connection, connect: Connect
) -> None:
    sleeper.sleep()
    first, second = connect(), connect()
    for enqueuer in (first, second):
        add(enqueuer)
        enqueuer.execute("SET CONSTRAINTS ALL IMMEDIATE")
    first.commit()
    assert sleeper.heard(other) == ["wake default"]
    # When woken, it finds the job of the first and sleeps again. Only then is the job of the second visible.
    sleeper.idle.look_now()
    assert sleeper.look()
    sleeper.wake()
    claim(other)
    sleeper.announce()
    assert not sleeper.look()
    second.commit()
    assert sleeper.heard(other) == []
    assert sleeper.idle.seconds_left(sleeper.now) <= 0.2
    assert sleeper.look()


def test_an_enqueue_after_set_constraints_immediate_still_wakes(
    sleeper: Sleeper, one: Connection, other: Connection
) -> None:
    add(one)
    one.execute("SET CONSTRAINTS ALL IMMEDIATE")
    sleeper.sleep()
    add(one)
    one.commit()
    assert sleeper.heard(other) == ["wake default"]


@pytest.mark.promise("edit-wakes")
def test_each_queue_wakes_its_own_sleepers(other: Connection) -> None:
    mail = Sleeper("mail", "news")
    try:
        mail.sleep()
        with other.transaction():
            (job,) = add(other)
            add(other, 2, queue_name="mail")
            add(other, queue_name="mailing")
        assert mail.heard(other) == ["wake mail"]
        other.execute("UPDATE pgqueue_job_live SET queue_name = 'news' WHERE id = %s", (job,))
        assert mail.heard(other) == ["wake news"]
    finally:
        mail.session.close()


def test_what_can_be_claimed_before_the_longest_poll_wakes(sleeper: Sleeper, other: Connection) -> None:
    (failed,) = over(other, 9, "1 day", status="failed")
    parent, given_back, retried = add(other, 3)
    claim(other)
    (later,) = add(other, run_after=in_seconds(86400))
    steps: list[tuple[Callable[[], object], bool]] = [
        (lambda: add(other, run_after=in_seconds(50)), True),
        (lambda: add(other, run_after=in_seconds(120)), False),
        (lambda: retry(other, [failed]), True),
        (lambda: finish(other, [given_back], "release"), True),
        (lambda: finish(other, [retried], "retry", delay=3600), False),
        (lambda: other.execute("SELECT pgqueue_run_now(ARRAY[%s::bigint])", (later,)), True),
        (lambda: after(other, [parent]), False),
        (lambda: finish(other, [parent]), True),
    ]
    sleeper.sleep()
    for number, (step, wakes) in enumerate(steps):
        step()
        assert sleeper.heard(other) == ["wake default"] * wakes, number


def test_a_transaction_with_the_notify_turned_off_can_be_prepared(
    sleeper: Sleeper, other: Connection
) -> None:
    if value(other, "SHOW max_prepared_transactions") == "0":
        pytest.skip("the server allows no prepared transactions")
    sleeper.sleep()
    other.execute("BEGIN")
    other.execute("SET LOCAL pgqueue.notify = off")
    add(other)
    other.execute("PREPARE TRANSACTION 'pgqueue_test'")
    other.execute("COMMIT PREPARED 'pgqueue_test'")
    assert sleeper.heard(other) == []
    assert sleeper.look()
    add(other)
    assert sleeper.heard(other) == ["wake default"], "the setting ended with its transaction"
