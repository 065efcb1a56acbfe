"""Recovery at the same time as other changes of the same job."""

from __future__ import annotations

import psycopg
import pytest

from tests.support.jobs import add, cancel, claim, finish, live, statuses, value
from tests.support.sessions import Connect, Connection, start
from tests.support.waiting import until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("settled_server")]


def running(connection: Connection, count: int = 1, *, worker: int = 1, lease: int = 1) -> list[int]:
    """Return jobs that a worker has claimed, committed."""
    add(connection, count)
    jobs = [row.id for row in claim(connection, count, worker=worker, lease=lease)]
    connection.commit()
    return jobs


def recover(connection: Connection, worker: int = 1) -> int:
    query = "SELECT jobs FROM _pgqueue_recover(ARRAY[%s]::bigint[], '{}', NULL, true, 'lost', 3, 100, 20)"
    return int(value(connection, query, worker))


def extend(connection: Connection, job: int, lease: int | None = None) -> list[int]:
    query = "SELECT unnest(pgqueue_extend(ARRAY[%s::bigint], '1 minute', %s))"
    return [row[0] for row in connection.execute(query, (job, lease)).fetchall()]


def register(connection: Connection, worker: int = 1, *, beat: str = "0 s", holds_lock: bool = False) -> None:
    connection.execute(
        "INSERT INTO pgqueue_worker"
        " (id, host, pid, supervisor, queues, slots, version, holds_lock, heartbeat_at)"
        " VALUES (%s, 'h', 1, 1, '{}', 1, '', %s, clock_timestamp() - %s::interval)",
        (worker, holds_lock, beat),
    )


def recover_dead(connection: Connection) -> tuple[int, int]:
    """Run a round with a heartbeat of 0.1 s and a lease of half a second."""
    query = "SELECT dead, jobs FROM _pgqueue_recover_dead(0.1, 0.5, 3, 100, 20)"
    row = connection.execute(query).fetchone()
    assert row is not None
    return row[0], row[1]


@pytest.mark.promise("completed-once")
def test_a_finish_that_comes_while_its_job_is_recovered_is_refused(connect: Connect) -> None:
    """A worker that was considered dead continues and reports."""
    recoverer, worker = connect(), connect(autocommit=True)
    (job,) = running(recoverer)
    assert recover(recoverer) == 1
    finished = start(worker, finish, [job]).blocked()
    recoverer.commit()
    assert finished.result() == []
    assert live(worker) == {job: "pending"}


@pytest.mark.promise("completed-once")
def test_a_finish_under_an_old_lease_is_refused_when_somebody_else_runs_the_job(connect: Connect) -> None:
    one = connect(autocommit=True)
    add(one)
    (row,) = claim(one, lease=1)
    assert recover(one) == 1
    (again,) = claim(one, worker=2, lease=2)
    assert again.id == row.id
    assert finish(one, [row.id], lease=1) == []
    assert live(one) == {row.id: "running"}
    assert finish(one, [row.id], lease=2) == [row.id]


def test_recovery_passes_by_a_job_that_is_being_finished(connect: Connect) -> None:
    worker, recoverer = connect(), connect(autocommit=True)
    (job,) = running(worker)
    assert finish(worker, [job]) == [job]
    assert recover(recoverer) == 0  # it does not wait
    worker.commit()
    assert statuses(recoverer) == {job: "done"}


def test_recovery_passes_by_a_job_that_is_being_cancelled_and_comes_again(
    connect: Connect,
) -> None:
    one, recoverer = connect(), connect(autocommit=True)
    (job,) = running(one)
    assert cancel(one, [job]) == 1
    assert recover(recoverer) == 0
    one.commit()
    assert recover(recoverer) == 1
    assert statuses(recoverer) == {job: "cancelled"}


def test_a_cancel_that_comes_while_a_job_is_recovered_takes_it_out_of_its_queue(connect: Connect) -> None:
    recoverer, other = connect(), connect(autocommit=True)
    (job,) = running(recoverer)
    assert recover(recoverer) == 1
    cancelled = start(other, cancel, [job]).blocked()
    recoverer.commit()
    assert cancelled.result() == 1
    assert statuses(other) == {job: "cancelled"}


def test_two_recoveries_share_the_jobs_and_count_each_crash_once(connect: Connect) -> None:
    one, other = connect(), connect(autocommit=True)
    jobs = running(one, 3)
    query = "SELECT jobs FROM _pgqueue_recover('{1}', %s::bigint[], NULL, true, 'lost', 3, %s, 20)"
    assert value(one, query, jobs, 2) == 2
    assert value(other, query, jobs, 100) == 1  # the jobs that the first one has not locked
    one.commit()
    assert value(other, query, jobs, 100) == 0
    assert live(other) == dict.fromkeys(jobs, "pending")
    counts = other.execute("SELECT crash_count FROM pgqueue_job_live").fetchall()
    assert counts == [(1,)] * 3


def test_two_recoveries_share_the_jobs_and_each_tells_of_its_own(connect: Connect) -> None:
    """So the log has one line for each job."""
    one, other = connect(), connect(autocommit=True)
    jobs = running(one, 3)
    query = (
        "SELECT jsonb_path_query_array(notable, '$.id')"
        " FROM _pgqueue_recover('{1}', %s::bigint[], NULL, true, 'lost', 1, %s, 20)"
    )
    told = [value(one, query, jobs, 2), value(other, query, jobs, 100)]
    one.commit()
    assert told == [jobs[:2], jobs[2:]]
    assert value(other, query, jobs, 100) == []
    assert statuses(other) == dict.fromkeys(jobs, "failed")


def test_only_one_round_of_recovery_at_a_time(connect: Connect) -> None:
    one, other = connect(), connect(autocommit=True)
    running(one)
    register(other, beat="1 s")
    assert recover_dead(one) == (1, 1)
    register(other, worker=2, beat="1 s")
    assert recover_dead(other) == (0, 0)  # only one of them runs the round
    one.commit()
    assert recover_dead(other) == (1, 0)
    assert value(other, "SELECT count(*) FROM pgqueue_worker") == 0


def test_a_worker_that_returns_while_it_is_found_dead_registers_only_afterwards(connect: Connect) -> None:
    """Therefore the jobs that it claims after that are not taken from it."""
    recoverer, worker = connect(), connect(autocommit=True)
    running(recoverer)
    register(worker, beat="1 s")
    assert recover_dead(recoverer) == (1, 1)
    beat = "UPDATE pgqueue_worker SET heartbeat_at = clock_timestamp() WHERE id = 1"
    returned = start(worker, lambda connection: connection.execute(beat).rowcount).blocked()
    recoverer.commit()
    assert returned.result() == 0  # its row is deleted, so it registers again


def test_a_worker_that_has_just_beaten_is_not_dead_whatever_was_read_before(connect: Connect) -> None:
    worker, recoverer = connect(), connect(autocommit=True)
    register(recoverer, beat="1 s")
    # The heartbeat stays fresh however long the rest takes.
    beat = "UPDATE pgqueue_worker SET heartbeat_at = clock_timestamp() + interval '1 minute' WHERE id = 1"
    worker.execute(beat)
    assert recover_dead(recoverer) == (0, 0)
    worker.commit()
    assert recover_dead(recoverer) == (0, 0)


def test_the_jobs_of_a_process_wait_until_the_server_is_through_with_it(connect: Connect) -> None:
    """The server may still execute the last claim when the process is gone."""
    dying, supervisor = connect(), connect(autocommit=True)
    (job,) = add(supervisor)
    register(supervisor, holds_lock=True)
    dying.execute("SELECT pg_advisory_lock(_pgqueue_lock_key('worker', '1'))")
    assert [row.id for row in claim(dying)] == [job]
    recover_worker = "SELECT jobs FROM _pgqueue_recover_worker(1, '{}', NULL, true, 'lost', 3, 100, 20)"
    assert value(supervisor, recover_worker) is None
    dying.commit()
    assert value(supervisor, recover_worker) is None
    dying.close()
    # The server needs a moment to end the session. After that the claim is visible, whenever it was
    # committed.
    assert until(lambda: value(supervisor, recover_worker)) == 1
    assert live(supervisor) == {job: "pending"}


@pytest.mark.promise("extend-tells")
def test_a_job_that_extends_itself_while_it_is_recovered_hears_so(
    connect: Connect,
) -> None:
    recoverer, worker = connect(), connect(autocommit=True)
    (job,) = running(recoverer)
    assert recover(recoverer) == 1
    extended = start(worker, extend, job, 1).blocked()
    recoverer.commit()
    assert extended.result() == []


def test_a_job_extends_itself_under_its_own_lease_only(connect: Connect) -> None:
    """The job was recovered and runs elsewhere. Its old worker must not change the deadline there."""
    one = connect(autocommit=True)
    (job,) = running(one, lease=1)
    assert recover(one) == 1
    assert [row.id for row in claim(one, worker=2, lease=2)] == [job]
    assert extend(one, job, 1) == []
    assert extend(one, job, 2) == [job]


def test_a_job_that_holds_its_row_for_a_fenced_write_can_be_extended(connect: Connect) -> None:
    task, other = connect(), connect(autocommit=True)
    (job,) = running(task)
    task.execute("SELECT FROM pgqueue_job_live WHERE id = %s AND lease = 1 FOR KEY SHARE", (job,))
    assert extend(other, job) == [job]
    assert recover(other) == 0  # and no other recovery takes it meanwhile
    task.commit()
    assert recover(other) == 1


def test_race_a_worker_that_stopped_in_the_middle_of_a_claim_keeps_nothing(connect: Connect) -> None:
    """Otherwise its session would hold the jobs until the process continues, which may never happen."""
    stopped, recoverer = connect(), connect(autocommit=True)
    (held,) = running(stopped, worker=1)
    stopped.execute("SELECT pg_advisory_lock(_pgqueue_lock_key('worker', '1'))")
    stopped.commit()
    (other,) = add(recoverer)
    assert [row.id for row in claim(stopped, worker=1)] == [other]
    register(recoverer, beat="1 s", holds_lock=True)
    assert claim(recoverer, worker=2) == []
    assert recover_dead(recoverer) == (1, 1)
    assert [row.id for row in claim(recoverer, 2, worker=2)][:1] == [held]
    until(lambda: live(recoverer)[other] == "running" or claim(recoverer, worker=2))
    assert live(recoverer) == {held: "running", other: "running"}
    with pytest.raises(psycopg.OperationalError):
        stopped.commit()


def test_race_a_worker_that_stopped_in_the_middle_of_a_report_is_recovered(connect: Connect) -> None:
    stopped, recoverer = connect(), connect(autocommit=True)
    (job,) = running(stopped, worker=1)
    stopped.execute("SELECT pg_advisory_lock(_pgqueue_lock_key('worker', '1'))")
    stopped.commit()
    assert finish(stopped, [job]) == [job]
    register(recoverer, beat="1 s", holds_lock=True)
    assert recover_dead(recoverer) == (1, 0)  # its row is locked; its worker stays on the list
    until(lambda: recover_dead(recoverer) == (1, 1))  # its session needs a moment to end
    assert live(recoverer) == {job: "pending"}


def test_a_session_that_may_not_be_ended_is_left_alone(connect: Connect) -> None:
    """Recovery continues without it."""
    stopped, recoverer = connect(autocommit=True), connect(autocommit=True)
    running(stopped, worker=1)
    stopped.execute("SELECT pg_advisory_lock(_pgqueue_lock_key('worker', '1'))")
    register(recoverer, beat="1 s", holds_lock=True)
    warnings: list[str | None] = []
    recoverer.add_notice_handler(lambda notice: warnings.append(notice.message_primary))
    recoverer.execute("DROP ROLE IF EXISTS pgqueue_weak")
    recoverer.execute("CREATE ROLE pgqueue_weak")
    recoverer.execute("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO pgqueue_weak")
    try:
        recoverer.execute("SET ROLE pgqueue_weak")
        assert recover_dead(recoverer) == (1, 1)
    finally:
        recoverer.execute("RESET ROLE")
        recoverer.execute("DROP OWNED BY pgqueue_weak")
        recoverer.execute("DROP ROLE pgqueue_weak")
    assert [message for message in warnings if message and "cannot be ended by pgqueue_weak" in message]
    assert stopped.execute("SELECT 1").fetchone() == (1,)
