"""Claims by SQL beside each other, beside the claims of Python, and beside recovery."""

from __future__ import annotations

import psycopg
import pytest

from tests.support.foreign import ForeignJob, finish_one, heartbeat, register, sql_claim, unregister
from tests.support.jobs import add, claim, live, value
from tests.support.keys import add_keyed, line, running, set_limit
from tests.support.sessions import Connect, Connection, start

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("settled_server")]


def ids(rows: list[ForeignJob]) -> list[int]:
    return [row.id for row in rows]


def recover(connection: Connection) -> tuple[int, int]:
    """Run a round of recovery with a lease of half a second."""
    row = connection.execute("SELECT dead, jobs FROM _pgqueue_recover_dead(0.1, 0.5, 3, 100, 20)")
    dead, jobs = row.fetchone() or (0, 0)
    return dead, jobs


def grow_silent(connection: Connection) -> None:
    connection.execute("UPDATE pgqueue_worker SET heartbeat_at = heartbeat_at - interval '1 s'")


@pytest.mark.promise("claims-apart")
def test_two_claims_at_once_never_get_the_same_job(connect: Connect) -> None:
    one, other = connect(), connect(autocommit=True)
    jobs = add(other, 5)
    workers = [register(other), register(other)]
    assert ids(sql_claim(one, workers[0], 3)) == jobs[:3]
    assert ids(sql_claim(other, workers[1], 5)) == jobs[3:]
    one.commit()
    assert value(other, "SELECT max(attempts) FROM pgqueue_job_live") == 1
    assert value(other, "SELECT count(DISTINCT lease) FROM pgqueue_job_live") == 2


def test_many_claims_at_once_share_the_jobs_out(connect: Connect) -> None:
    jobs = add(connect(autocommit=True), 300)
    connections = [connect(autocommit=True) for _ in range(6)]

    def drain(connection: Connection, in_sql: bool) -> list[int]:
        mine: list[int] = []
        worker = register(connection)
        while True:
            rows = sql_claim(connection, worker, 7) if in_sql else claim(connection, 7, lease=worker)
            if not rows:
                return mine
            mine += [row.id for row in rows]

    drains = [start(connection, drain, number < 4) for number, connection in enumerate(connections)]
    assert sorted(job for drained in drains for job in drained.result()) == jobs


@pytest.mark.promise("claims-apart")
def test_a_claim_of_python_and_one_by_sql_pass_over_the_jobs_of_each_other(connect: Connect) -> None:
    one, other = connect(), connect(autocommit=True)
    jobs = add(other, 6)
    worker = register(other)
    assert [row.id for row in claim(one, 2)] == jobs[:2]
    assert ids(sql_claim(other, worker, 1)) == jobs[2:3]
    one.commit()
    assert ids(sql_claim(one, worker, 1)) == jobs[3:4]
    assert [row.id for row in claim(other, lease=2)] == jobs[4:]
    one.commit()
    assert value(other, "SELECT max(attempts) FROM pgqueue_job_live") == 1


@pytest.mark.parametrize("python_first", [True, False])
@pytest.mark.promise("sql-limits")
def test_a_key_of_limit_1_with_a_claim_of_python_and_one_by_sql(connect: Connect, python_first: bool) -> None:
    one, other = connect(), connect(autocommit=True)
    jobs = add_keyed(other, 3)
    worker = register(other)
    if python_first:
        assert [row.id for row in claim(one, 1)] == jobs[:1]
        assert sql_claim(other, worker) == []  # nobody can tell before the commit
        one.commit()
        assert sql_claim(other, worker) == []
    else:
        assert ids(sql_claim(one, worker, 1)) == jobs[:1]
        assert claim(other) == []
        one.commit()
        assert claim(other) == []
    assert (running(other), line(other)) == (jobs[:1], jobs[1:])


def test_a_limited_queue_has_room_for_one_claim_at_a_time(connect: Connect) -> None:
    one, other = connect(), connect(autocommit=True)
    add(other, 4)
    set_limit(other, "queue:default", 3)
    workers = [register(other), register(other)]
    assert len(sql_claim(one, workers[0], 2)) == 2
    assert sql_claim(other, workers[1]) == []
    one.commit()
    assert len(sql_claim(other, workers[1])) == 1


@pytest.mark.promise("sql-refused")
def test_a_report_that_waits_for_recovery_is_refused(connect: Connect) -> None:
    one, other = connect(), connect(autocommit=True)
    add(other)
    (job,) = sql_claim(other, register(other))
    grow_silent(other)
    assert recover(one) == (1, 1)
    late = start(other, finish_one, job).blocked()
    one.commit()
    with pytest.raises(psycopg.IntegrityError) as refusal:
        late.result()
    assert refusal.value.sqlstate == "23Q03"
    assert live(other) == {job.id: "pending"}


def test_recovery_waits_with_a_worker_that_is_claiming(connect: Connect) -> None:
    """It would delete the row of a worker that has just claimed a job, and nobody would find the job."""
    one, other = connect(), connect(autocommit=True)
    worker = register(other)
    (job,) = add(other)
    grow_silent(other)
    assert ids(sql_claim(one, worker)) == [job]
    assert recover(other) == (0, 0)
    one.commit()
    assert recover(other) == (0, 0)
    assert heartbeat(other, worker) == (True, [], False)


def test_a_claim_that_waits_for_recovery_is_refused(connect: Connect) -> None:
    one, other = connect(), connect(autocommit=True)
    worker = register(other)
    (job,) = add(other)
    grow_silent(other)
    assert recover(one) == (1, 0)
    late = start(other, sql_claim, worker).blocked()
    one.commit()
    with pytest.raises(psycopg.IntegrityError) as refusal:
        late.result()
    assert refusal.value.sqlstate == "23Q04"
    assert live(other) == {job: "pending"}


def test_a_heartbeat_that_waits_for_recovery_learns_it(connect: Connect) -> None:
    one, other = connect(), connect(autocommit=True)
    worker = register(other)
    grow_silent(other)
    assert recover(one) == (1, 0)
    late = start(other, heartbeat, worker).blocked()
    one.commit()
    assert late.result() == (False, [], False)


def test_a_worker_that_is_claiming_is_not_signed_off(connect: Connect) -> None:
    one, other = connect(), connect(autocommit=True)
    worker = register(other)
    add(other)
    assert len(sql_claim(one, worker)) == 1
    late = start(other, unregister, worker).blocked()
    one.commit()
    assert late.result() is False
    assert heartbeat(other, worker)[0]
