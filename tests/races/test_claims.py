"""Claims beside each other: of workers in Python, by SQL, in the process of a caller, and by a command. And
jobs that become claimable behind the mark up to which a worker has looked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from time import monotonic

import psycopg
import pytest
from django.utils import timezone

from django_pgqueue import enqueue
from django_pgqueue.jobs.claim import claim_sql
from django_pgqueue.postgres.session import Session, connect as connect_worker
from django_pgqueue.worker.inline import InlineWorker
from django_pgqueue.worker.options import WorkerOptions
from django_pgqueue.worker.producer.claimer import Claimer as WorkersClaimer
from tests.app import inline_tasks
from tests.support.jobs import (
    add,
    claim,
    claim_and_tell,
    claim_groups,
    finish,
    finish_one,
    heartbeat,
    live,
    register,
    sql,
    sql_claim,
    unregister,
    value,
)
from tests.support.limits import add_keyed, line, running, set_limit
from tests.support.sessions import Connect, Connection, behind, start
from tests.support.waiting import until
from tests.support.workers import fresh, recover_dead

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("settled_server")]

Claim = Callable[[Connection, int], list[int]]


def by_python(connection: Connection, limit: int) -> list[int]:
    lease = value(connection, "SELECT pg_backend_pid()")
    return [row.id for row in claim(connection, limit, worker=lease, lease=lease)]


def by_sql(connection: Connection, limit: int) -> list[int]:
    """Register as a worker, which stays registered if the claim is committed."""
    return [row.id for row in sql_claim(connection, register(connection), limit)]


@pytest.mark.parametrize("first", [by_python, by_sql])
@pytest.mark.parametrize("second", [by_python, by_sql])
@pytest.mark.promise("claims-apart")
def test_a_claim_passes_over_the_jobs_of_an_open_one_without_waiting(
    one: Connection, other: Connection, first: Claim, second: Claim
) -> None:
    jobs = add(other, 5)
    assert first(one, 3) == jobs[:3]
    assert second(other, 5) == jobs[3:]
    one.commit()
    assert value(other, "SELECT max(attempts) FROM pgqueue_job_live") == 1
    assert value(other, "SELECT count(DISTINCT lease) FROM pgqueue_job_live") >= 2


def of_a_group(connection: Connection, limit: int) -> list[int]:
    return [row.id for row in claim_groups(connection, {"acme": limit})]


@pytest.mark.parametrize("claims", [of_a_group, by_sql])
def test_a_claim_passes_over_the_jobs_of_a_group_in_an_open_one(
    one: Connection, other: Connection, claims: Claim
) -> None:
    jobs = add(other, 3)
    other.execute("UPDATE pgqueue_job_live SET group_key = 'acme'")
    assert claims(one, 1) == jobs[:1]
    assert claims(other, 5) == jobs[1:]


@pytest.mark.promise("claims-apart")
def test_a_claim_that_saw_a_job_before_another_took_it_leaves_it_alone(
    connect: Connect, other: Connection
) -> None:
    gate, late = connect(autocommit=True), connect(autocommit=True)
    jobs = add(other, 3)
    # The statement takes its snapshot, then stops at the gate, then looks for rows.
    statement = claim_sql().replace(
        "%(queues)s::text[]", "(SELECT %(queues)s::text[] FROM pg_advisory_lock_shared(7))"
    )
    gate.execute("SELECT pg_advisory_lock(7)")
    claimed = start(late, claim, 3, worker=2, lease=2, statement=statement).blocked()
    assert [row.id for row in claim(other, 2, worker=1)] == jobs[:2]
    gate.execute("SELECT pg_advisory_unlock(7)")
    assert [row.id for row in claimed.result()] == jobs[2:]
    assert value(other, "SELECT max(attempts) FROM pgqueue_job_live") == 1


def test_a_job_that_is_to_be_claimed_first_is_not_claimed_twice(one: Connection, other: Connection) -> None:
    """The gate has told two workers that it may start, or one of them finds it by its time."""
    (job,) = add(other)
    assert [row.id for row in claim(one)] == [job]
    assert claim_and_tell(other, lease=2, first=[job]).rows == []
    one.commit()
    assert value(other, "SELECT attempts FROM pgqueue_job_live WHERE id = %s", job) == 1


@pytest.mark.parametrize("first", [by_python, by_sql])
@pytest.mark.parametrize("second", [by_python, by_sql])
@pytest.mark.promise("limit", "sql-limits")
def test_two_claims_at_once_never_pass_the_limit_of_a_key(
    one: Connection, other: Connection, first: Claim, second: Claim
) -> None:
    jobs = add_keyed(other, 3)
    assert first(one, 1) == jobs[:1]
    assert second(other, 100) == []  # nobody can tell before the commit
    one.commit()
    assert second(other, 100) == []
    assert (running(other), line(other)) == (jobs[:1], jobs[1:])


def test_a_limited_queue_has_room_for_one_claim_by_sql_at_a_time(one: Connection, other: Connection) -> None:
    add(other, 4)
    set_limit(other, "queue:default", 3)
    assert len(by_sql(one, 2)) == 2
    assert by_sql(other, 100) == []
    one.commit()
    assert len(by_sql(other, 100)) == 1


# -- a worker by SQL that has been silent, beside recovery


@pytest.fixture
def silent(other: Connection) -> int:
    """A worker whose last heartbeat is older than the lease."""
    worker = register(other)
    other.execute("UPDATE pgqueue_worker SET heartbeat_at = heartbeat_at - interval '1 s'")
    return worker


@pytest.mark.parametrize(("has_claimed", "code"), [(True, "23Q03"), (False, "23Q04")])
@pytest.mark.promise("sql-refused")
def test_a_report_or_a_claim_that_waits_for_recovery_is_refused(
    one: Connection, other: Connection, silent: int, has_claimed: bool, code: str
) -> None:
    (job,) = add(other)
    claimed = sql_claim(other, silent) if has_claimed else []
    other.execute("UPDATE pgqueue_worker SET heartbeat_at = clock_timestamp() - interval '1 s'")
    assert recover_dead(one) == (1, len(claimed))
    late = partial(finish_one, job=claimed[0]) if claimed else partial(sql_claim, worker=silent)
    with pytest.raises(psycopg.IntegrityError) as refusal:
        behind(one, other, late)
    assert refusal.value.sqlstate == code
    assert live(other) == {job: "pending"}


def test_a_heartbeat_that_waits_for_recovery_learns_it(
    one: Connection, other: Connection, silent: int
) -> None:
    assert recover_dead(one) == (1, 0)
    assert behind(one, other, heartbeat, silent) == (False, [], False)


def test_a_worker_that_is_claiming_is_neither_recovered_nor_signed_off(
    one: Connection, other: Connection, silent: int
) -> None:
    """Its row would be deleted, and nobody would find the job that it has just claimed."""
    (job,) = add(other)
    assert [row.id for row in sql_claim(one, silent)] == [job]
    assert recover_dead(other) == (0, 0)
    assert behind(one, other, unregister, silent) is False
    assert recover_dead(other) == (0, 0)
    assert heartbeat(other, silent) == (True, [], False)


# -- workers in the process of their caller: without the lock that a claim takes first, they wait for the
# other one, and claim the job again


def test_a_job_that_another_worker_claims_at_this_moment_is_not_run_inline(one: Connection) -> None:
    here = InlineWorker("default")
    job = enqueue(inline_tasks.see, 1)
    sql("SET lock_timeout TO '3s'")
    try:
        assert [row.id for row in claim(one)] == [job.pk]
        assert here.run_if_due(job.pk) is None
        assert here.run_next() is None
        one.commit()
        assert here.run_if_due(job.pk) is None
        assert fresh(job).worker == 1
        assert finish(one, [job.pk]) == [job.pk]
        one.commit()
        assert fresh(job).attempts == 1
    finally:
        sql("RESET lock_timeout")


# --- Jobs that become visible, or claimable, behind the mark up to which a worker has looked


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


def test_a_job_committed_late_behind_the_mark_is_found_by_the_rescan(
    claimer: Claimer, connect: Connect
) -> None:
    slow, quick = connect(), connect()
    (late,) = add(slow)
    backdate(slow, late, "10 seconds")
    raise_the_mark(claimer, quick)
    spend_the_ration(claimer)
    slow.commit()
    assert claimer.claim() == [], "it lies behind the mark"
    assert not claimer.search(), "a search of the gaps does not look behind the mark"
    claimer.claimer._next_rescan = monotonic() + 0.05  # as if the last one had been cheap
    assert until(claimer.look) == [late]


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
