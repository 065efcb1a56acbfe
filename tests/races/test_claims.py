from __future__ import annotations

import pytest

from django_pgqueue.jobs.claim import claim_sql
from tests.support.jobs import Range, add, cancel, claim, claim_and_tell, value
from tests.support.sessions import Connect, Connection, start

pytestmark = pytest.mark.django_db(transaction=True)


def unlocked(connection: Connection) -> int:
    """Return how many jobs are not locked."""
    with connection.transaction(force_rollback=True):
        rows = connection.execute("SELECT id FROM pgqueue_job_live FOR UPDATE SKIP LOCKED").fetchall()
    return len(rows)


def test_a_claim_passes_over_the_jobs_of_an_open_one_without_waiting(connect: Connect) -> None:
    one, other = connect(), connect(autocommit=True)
    jobs = add(other, 5)
    first = claim(one, 3, worker=1)
    second = claim(other, 5, worker=2)
    one.commit()
    assert [row.id for row in first] == jobs[:3]
    assert [row.id for row in second] == jobs[3:]
    assert value(other, "SELECT count(*) FROM pgqueue_job_live WHERE worker = 1") == 3


@pytest.mark.promise("claims-apart")
def test_a_claim_that_saw_a_job_before_another_took_it_leaves_it_alone(connect: Connect) -> None:
    gate, one, other = connect(autocommit=True), connect(autocommit=True), connect(autocommit=True)
    jobs = add(one, 3)
    # The statement takes its snapshot, then stops at the gate, then looks for rows.
    statement = claim_sql().replace(
        "%(queues)s::text[]", "(SELECT %(queues)s::text[] FROM pg_advisory_lock_shared(7))"
    )
    gate.execute("SELECT pg_advisory_lock(7)")
    late = start(other, claim, 3, worker=2, lease=2, statement=statement).blocked()
    first = claim(one, 2, worker=1)
    gate.execute("SELECT pg_advisory_unlock(7)")
    assert [row.id for row in first] == jobs[:2]
    assert [row.id for row in late.result()] == jobs[2:]
    assert value(one, "SELECT max(attempts) FROM pgqueue_job_live") == 1


def test_a_claim_locks_no_more_than_it_returns(connect: Connect) -> None:
    one, other = connect(), connect(autocommit=True)
    add(other, 40)
    add(other, 40, queue_name="mail")
    other.execute("ANALYZE pgqueue_job_live")
    for plan in ("force_custom_plan", "force_generic_plan"):
        one.execute(f"SET plan_cache_mode = {plan}")
        for _ in range(6):
            assert len(claim(one, 30, ranges=[Range("mail"), Range("default")])) == 30
            assert unlocked(other) == 50
            one.rollback()


@pytest.mark.promise("cancel-transaction")
def test_a_claim_passes_over_a_job_that_is_being_cancelled(connect: Connect) -> None:
    canceller, claimer = connect(), connect(autocommit=True)
    jobs = add(claimer, 2)
    assert cancel(canceller, jobs[:1]) == 1
    assert [row.id for row in claim(claimer)] == jobs[1:]
    canceller.commit()


def test_many_claims_at_once_share_the_jobs_out(connect: Connect) -> None:
    jobs = add(connect(autocommit=True), 600)
    workers = [connect(autocommit=True) for _ in range(6)]

    def drain(connection: Connection, worker: int) -> list[int]:
        mine: list[int] = []
        while rows := claim(connection, 7, worker=worker, lease=worker):
            assert len(rows) <= 7
            mine += [row.id for row in rows]
        return mine

    drains = [start(connection, drain, number) for number, connection in enumerate(workers)]
    taken = [job for drained in drains for job in drained.result()]
    assert sorted(taken) == jobs


def test_a_job_that_is_to_be_claimed_first_is_not_claimed_twice(connect: Connect) -> None:
    """The gate has told two workers that it may start, or one of them finds it by its time."""
    one, other = connect(), connect(autocommit=True)
    (job,) = add(one)
    one.commit()
    assert [row.id for row in claim(one)] == [job]
    assert claim_and_tell(other, lease=2, first=[job]).rows == []
    one.commit()
    assert value(other, "SELECT attempts FROM pgqueue_job_live WHERE id = %s", job) == 1
