"""Jobs that become visible, or claimable, behind the mark up to which a worker has looked."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from time import monotonic

import pytest
from django.utils import timezone

from django_pgqueue.postgres.session import Session, connect as connect_worker
from django_pgqueue.worker.options import WorkerOptions
from django_pgqueue.worker.producer.claimer import Claimer as WorkersClaimer
from tests.support.jobs import add, finish
from tests.support.limits import add_keyed
from tests.support.sessions import Connect, Connection
from tests.support.waiting import until

pytestmark = pytest.mark.django_db(transaction=True)


class Claimer:
    """What a worker does to get jobs, step by step."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.claimer = WorkersClaimer(WorkerOptions(), worker=1)
        self.claimer._lease = 1000

    def claim(self, limit: int = 100) -> list[int]:
        if not self.claimer.knows_ranges:
            return []
        return [row.id for row in self.claimer.claim(self.session, limit)]

    def search(self) -> bool:
        return self.claimer.search(self.session)[0]

    def look(self) -> list[int]:
        """Do what the producer does: claim, or else search for ranges and claim again."""
        return self.claim() or (self.claim() if self.search() else [])


@pytest.fixture
def claimer(transactional_db: None) -> Iterator[Claimer]:
    session = connect_worker("default")
    yield Claimer(session)
    session.close()


def backdate(connection: Connection, job: int, age: str) -> None:
    """Change the job as if the transaction that enqueued it had begun that long ago."""
    connection.execute(
        "UPDATE pgqueue_job_live SET run_after = clock_timestamp() - %s::interval WHERE id = %s", (age, job)
    )


def raise_the_mark(claimer: Claimer, connection: Connection, age: str = "5 seconds") -> None:
    """Let the worker claim a job of this age, so that it looks only for younger jobs."""
    (job,) = add(connection)
    backdate(connection, job, age)
    connection.commit()
    assert claimer.look() == [job]


def spend_the_ration(claimer: Claimer) -> None:
    """Pretend that the last rescan was expensive, so that the next one must wait for hours."""
    claimer.claimer._next_rescan = monotonic() + 50_000


def allow_a_rescan(claimer: Claimer) -> None:
    """Pretend that it was cheap, so that the next one may run after 50 ms."""
    claimer.claimer._next_rescan = monotonic() + 0.05


def only_a_rescan_finds(claimer: Claimer, job: int) -> None:
    assert claimer.claim() == [], "it lies behind the mark"
    assert not claimer.search(), "a search of the gaps does not look behind the mark"
    allow_a_rescan(claimer)
    assert until(claimer.look) == [job]


def test_a_job_committed_late_behind_the_mark_is_found_by_the_rescan(
    claimer: Claimer, connect: Connect
) -> None:
    slow, quick = connect(), connect()
    (late,) = add(slow)
    backdate(slow, late, "10 seconds")
    raise_the_mark(claimer, quick)
    spend_the_ration(claimer)
    slow.commit()
    only_a_rescan_finds(claimer, late)


def test_a_job_committed_less_than_half_a_second_late_is_found_at_once(
    claimer: Claimer, connect: Connect
) -> None:
    slow, quick = connect(), connect()
    (late,) = add(slow)
    on_time = add(quick, 3)
    quick.commit()
    assert claimer.look() == on_time
    spend_the_ration(claimer)
    # The mark is half a second before the claim. The time that the test has taken since then does not matter.
    slow.execute(
        "UPDATE pgqueue_job_live AS job SET run_after = claimed.last_attempted_at - interval '0.4 seconds'"
        " FROM pgqueue_job_live AS claimed WHERE job.id = %s AND claimed.id = %s",
        (late, on_time[-1]),
    )
    slow.commit()
    assert claimer.claim() == [late]


@pytest.mark.parametrize("later", [timedelta(seconds=30), timedelta(days=1)])
def test_a_first_job_that_is_due_later_hides_none_that_is_due_before(
    claimer: Claimer, one: Connection, later: timedelta
) -> None:
    add(one, run_after=timezone.now() + later)
    one.commit()
    assert not claimer.search()
    spend_the_ration(claimer)
    (job,) = add(one)
    one.commit()
    assert claimer.look() == [job]


def test_a_priority_edited_to_behind_a_mark_is_found_by_the_rescan(claimer: Claimer, one: Connection) -> None:
    (urgent,) = add(one, priority=50)
    one.commit()
    assert claimer.look() == [urgent]
    (waiting,) = add(one)
    backdate(one, waiting, "10 seconds")
    one.commit()
    spend_the_ration(claimer)
    one.execute("UPDATE pgqueue_job_live SET priority = 50 WHERE id = %s", (waiting,))
    one.commit()
    # Its old range is empty, and in the new range it is below the mark.
    only_a_rescan_finds(claimer, waiting)


def test_a_time_edited_to_behind_the_mark_is_found_by_the_rescan(claimer: Claimer, one: Connection) -> None:
    (later,) = add(one, run_after="2099-01-01T00:00:00Z")
    one.commit()
    raise_the_mark(claimer, one)
    spend_the_ration(claimer)
    backdate(one, later, "1 hour")
    one.commit()
    only_a_rescan_finds(claimer, later)


@pytest.mark.promise("edit-seen")
def test_a_new_priority_and_a_new_queue_are_found_without_a_rescan(claimer: Claimer, one: Connection) -> None:
    raise_the_mark(claimer, one)
    spend_the_ration(claimer)
    jobs = [
        *add(one, priority=7),
        *add(one, priority=-7),
        *add(one, queue_name="a"),
        *add(one, queue_name="z"),
    ]
    one.commit()
    assert claimer.search()
    assert sorted(claimer.claim()) == jobs


def test_whatever_becomes_claimable_again_lies_above_the_mark(claimer: Claimer, one: Connection) -> None:
    first, second, third, fourth = add(one, 4)
    for job in (first, second, third, fourth):
        backdate(one, job, "10 seconds")
    one.commit()
    assert sorted(claimer.look()) == [first, second, third, fourth]
    raise_the_mark(claimer, one)
    spend_the_ration(claimer)
    for job, kind in ((first, "retry"), (second, "release"), (third, "done"), (fourth, "snooze")):
        assert finish(one, [job], kind, lease=1001) == [job]
    one.execute("SELECT pgqueue_retry(ARRAY[%s::bigint], done => true)", (third,))
    one.commit()
    assert sorted(claimer.claim()) == [first, second, third, fourth]


def test_a_job_that_is_claimed_before_its_turn_does_not_move_the_mark(
    claimer: Claimer, one: Connection
) -> None:
    first, second = add_keyed(one, 2)
    one.commit()
    assert claimer.look() == [first]
    assert finish(one, [first], lease=1001) == [first]  # the second one is released, at this time
    older = add(one, 2)
    for job, age in zip(older, [40, 30], strict=True):
        backdate(one, job, f"{age} seconds")
    one.commit()
    claimer.claimer.search(claimer.session, thorough=True)
    spend_the_ration(claimer)
    claimer.claimer._following = [second]  # as the gate tells
    assert claimer.claim(1) == [second]
    assert claimer.claim(2) == older
