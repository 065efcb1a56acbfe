"""Recovery at the same time as other changes of the same job, and other maintenance beside workers and
users.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import NamedTuple

import psycopg
import pytest

from django_pgqueue.models import FailureGroup
from django_pgqueue.postgres.session import Session, connect as connect_worker
from django_pgqueue.worker.options import WorkerOptions
from django_pgqueue.worker.sessions import Registration, requeue_strangers
from tests.support.databases import roles
from tests.support.figures import count, counted, fold, forget, note, roll_up
from tests.support.jobs import (
    add,
    after,
    claim,
    finish,
    live,
    maintenance,
    open_batch,
    over,
    retry,
    rotate,
    running,
    statuses,
    value,
)
from tests.support.limits import add_many, repair
from tests.support.sessions import Connect, Connection, behind, open_raw, start
from tests.support.waiting import until
from tests.support.workers import recover, recover_dead

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("settled_server")]


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


@pytest.mark.promise("completed-once")
def test_an_old_lease_changes_nothing_when_somebody_else_runs_the_job(other: Connection) -> None:
    """Its old worker reports it, extends it, or is recovered once more."""
    give_back = (
        "SELECT jobs FROM _pgqueue_give_back(ARRAY[%s::bigint], '{1}', '{t}', '{f}', '{t}', '', NULL, 3, 20)"
    )
    (job,) = running(other)
    assert recover(other) == 1
    assert [row.id for row in claim(other, worker=2, lease=2)] == [job]
    crashes = value(other, "SELECT crash_count FROM pgqueue_job_live")
    assert (finish(other, [job]), extend(other, job, 1), value(other, give_back, job)) == ([], [], 0)
    assert live(other) == {job: "running"}
    assert value(other, "SELECT crash_count FROM pgqueue_job_live") == crashes
    assert (extend(other, job, 2), finish(other, [job], lease=2)) == ([job], [job])


@pytest.mark.parametrize(("limit", "status"), [(3, "pending"), (1, "failed")])
def test_two_recoveries_share_the_jobs_and_each_counts_and_tells_of_its_own(
    one: Connection, other: Connection, limit: int, status: str
) -> None:
    """So each crash is counted once, and the log has one line for each job."""
    jobs = running(one, 3)
    query = (
        "SELECT jobs, jsonb_path_query_array(notable, '$.id')"
        f" FROM _pgqueue_recover('{{1}}', %s::bigint[], NULL, true, 'lost', {limit}, %s, 20)"
    )
    told = [
        connection.execute(query, (jobs, most)).fetchone() for connection, most in ((one, 2), (other, 100))
    ]
    one.commit()
    assert told == [(2, jobs[:2]), (1, jobs[2:])]
    assert other.execute(query, (jobs, 100)).fetchone() == (0, [])
    assert statuses(other) == dict.fromkeys(jobs, status)
    assert value(other, "SELECT array_agg(crash_count) FROM pgqueue_job") == [1] * 3


@pytest.mark.parametrize("holds", [False, True])
def test_a_worker_that_returns_while_it_is_found_dead_registers_only_afterwards(
    connect: Connect, one: Connection, other: Connection, holds: bool
) -> None:
    """So the jobs that it claims then are not taken from it. Its row stays if one of its jobs is locked."""
    holder = connect()
    first, _ = running(one, 2)
    if holds:
        holder.execute("SELECT FROM pgqueue_job_live WHERE id = %s FOR UPDATE", (first,))
    register(other, beat="1 s")
    assert recover_dead(one) == (1, 1 if holds else 2)
    beat = "UPDATE pgqueue_worker SET heartbeat_at = clock_timestamp() WHERE id = 1"
    assert behind(one, other, lambda connection: connection.execute(beat).rowcount) == int(holds)


def test_a_worker_that_has_just_beaten_is_not_dead_whatever_was_read_before(
    one: Connection, other: Connection
) -> None:
    register(other, beat="1 s")
    # The heartbeat stays fresh however long the rest takes.
    beat = "UPDATE pgqueue_worker SET heartbeat_at = clock_timestamp() + interval '1 minute' WHERE id = 1"
    one.execute(beat)
    assert recover_dead(other) == (0, 0)
    one.commit()
    assert recover_dead(other) == (0, 0)


RECOVER_WORKER = "SELECT jobs FROM _pgqueue_recover_worker(1, '{}', NULL, true, 'lost', 3, 100, 20)"


def test_the_jobs_of_a_process_wait_until_the_server_is_through_with_it(
    one: Connection, other: Connection
) -> None:
    """The server may still execute the last claim when the process is gone."""
    (job,) = add(other)
    register(other, holds_lock=True)
    one.execute("SELECT pg_advisory_lock(_pgqueue_lock_key('worker', '1'))")
    assert [row.id for row in claim(one)] == [job]
    assert value(other, RECOVER_WORKER) is None
    one.commit()
    assert value(other, RECOVER_WORKER) is None
    one.close()
    # The server needs a moment to end the session. After that the claim is visible, whenever it was
    # committed.
    assert until(lambda: value(other, RECOVER_WORKER)) == 1
    assert live(other) == {job: "pending"}


def test_a_worker_whose_job_somebody_has_locked_is_recovered_again(
    one: Connection, other: Connection
) -> None:
    first, second = running(one, 2)
    register(other)
    one.execute("SELECT FROM pgqueue_job_live WHERE id = %s FOR UPDATE", (first,))
    assert value(other, RECOVER_WORKER) is None, "there are more"
    assert live(other) == {first: "running", second: "pending"}
    one.commit()
    assert value(other, RECOVER_WORKER) == 1
    assert value(other, "SELECT count(*) FROM pgqueue_worker") == 0


def test_a_job_that_holds_its_row_for_a_fenced_write_can_be_extended(
    one: Connection, other: Connection
) -> None:
    (job,) = running(one)
    one.execute("SELECT FROM pgqueue_job_live WHERE id = %s AND lease = 1 FOR KEY SHARE", (job,))
    assert extend(other, job) == [job]
    assert recover(other) == 0  # and no other recovery takes it meanwhile
    one.commit()
    assert recover(other) == 1


def test_race_a_worker_that_stopped_in_the_middle_of_a_claim_keeps_nothing(
    one: Connection, other: Connection
) -> None:
    """Otherwise its session would hold the jobs until the process continues, which may never happen."""
    (held,) = running(one, worker=1)
    one.execute("SELECT pg_advisory_lock(_pgqueue_lock_key('worker', '1'))")
    one.commit()
    (taken,) = add(other)
    assert [row.id for row in claim(one, worker=1)] == [taken]
    register(other, beat="1 s", holds_lock=True)
    assert claim(other, worker=2) == []
    assert recover_dead(other) == (1, 1)
    assert [row.id for row in claim(other, 2, worker=2)][:1] == [held]
    until(lambda: live(other)[taken] == "running" or claim(other, worker=2))
    assert live(other) == {held: "running", taken: "running"}
    with pytest.raises(psycopg.OperationalError):
        one.commit()


def test_race_a_worker_that_stopped_in_the_middle_of_a_report_is_recovered(
    one: Connection, other: Connection
) -> None:
    (job,) = running(one, worker=1)
    one.execute("SELECT pg_advisory_lock(_pgqueue_lock_key('worker', '1'))")
    one.commit()
    assert finish(one, [job]) == [job]
    register(other, beat="1 s", holds_lock=True)
    assert recover_dead(other) == (1, 0)  # its row is locked; its worker stays on the list
    until(lambda: recover_dead(other) == (1, 1))  # its session needs a moment to end
    assert live(other) == {job: "pending"}


def test_a_session_that_may_not_be_ended_is_left_alone(connect: Connect) -> None:
    """Recovery continues without it."""
    stopped, recoverer = connect(autocommit=True), connect(autocommit=True)
    running(stopped, worker=1)
    stopped.execute("SELECT pg_advisory_lock(_pgqueue_lock_key('worker', '1'))")
    register(recoverer, beat="1 s", holds_lock=True)
    warnings: list[str | None] = []
    recoverer.add_notice_handler(lambda notice: warnings.append(notice.message_primary))
    with roles("weak") as (weak,):
        recoverer.execute(f'GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO "{weak}"')
        recoverer.execute(f'SET ROLE "{weak}"')
        assert recover_dead(recoverer) == (1, 1)
        recoverer.execute("RESET ROLE")
    assert [message for message in warnings if message and f"cannot be ended by {weak}" in message]
    assert stopped.execute("SELECT 1").fetchone() == (1,)


# -- a worker connects again while the server still works on what its last session has sent


WORKER = 7


def test_a_claim_of_the_last_session_is_not_committed_after_the_new_one_has_looked(connect: Connect) -> None:
    """Its answer would reach nobody, and a worker that is alive would keep the lease of the job forever."""
    setup, lock = connect(autocommit=True), connect()
    (job,) = add(setup)
    registration = Registration(WorkerOptions(), WORKER, 1)
    with closing(connect_worker("default")) as old:
        registration.register(old)
        old.connection.execute("SET lock_timeout TO '15s'")
        lock.execute("LOCK TABLE pgqueue_job IN EXCLUSIVE MODE")
        claimed = start(old.connection, claim, worker=WORKER).blocked()
        with closing(connect_worker("default")) as new:
            registration.register(new)
            requeue_strangers(new, WORKER, [])
            lock.rollback()
            with pytest.raises(psycopg.errors.AdminShutdown):
                claimed.result()
            assert live(setup) == {job: "pending"}
            assert new.holds_lock


def test_race_a_worker_is_not_found_dead_between_the_end_of_its_last_session_and_its_new_lock(
    other: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its supervisor has lost its connection as well, so its last heartbeat is old."""
    rounds: list[object] = []
    try_lock = Registration._try_lock

    def late(self: Registration, session: Session) -> None:
        if session is new and value(other, "SELECT pid FROM pg_stat_activity WHERE pid = %s", pid) is None:
            rounds.append(value(other, "SELECT dead FROM _pgqueue_recover_dead(0.1, 60, 3, 100, 20)"))
        try_lock(self, session)

    monkeypatch.setattr(Registration, "_try_lock", late)
    registration = Registration(WorkerOptions(), WORKER, 1)
    new: Session | None = None
    with closing(connect_worker("default")) as old:
        pid = old.connection.info.backend_pid
        registration.register(old)
        (job,) = running(other, worker=WORKER)
        other.execute("UPDATE pgqueue_worker SET heartbeat_at = heartbeat_at - interval '1 s'")
        with closing(connect_worker("default")) as new:
            registration.register(new)
            assert new.holds_lock
    assert rounds
    assert not any(rounds)
    assert live(other) == {job: "running"}


# --- Maintenance beside workers and users: the rotation of history, statistics, and groups of failures


def dies(connection: Connection) -> None:
    running(connection)
    register(connection, beat="1 s")


def strands_a_batch(connection: Connection) -> None:
    _, (job,) = open_batch(connection, 1)
    connection.execute("DELETE FROM pgqueue_job WHERE id = %s", (job,))


def strands_a_child(connection: Connection) -> None:
    after(connection, add(connection))
    connection.execute("DELETE FROM pgqueue_edge")


def strands_a_line(connection: Connection) -> None:
    first, _ = add_many(connection, "k", "k")
    connection.execute("DELETE FROM pgqueue_job WHERE id = %s", (first,))


def strands_a_paused_job(connection: Connection) -> None:
    connection.execute("SELECT pgqueue_pause('task', 'tests.app.tasks.noop')")
    finish(connection, running(connection), "paused", reason="paused")
    connection.execute("SELECT pgqueue_resume('task', 'tests.app.tasks.noop')")


class Duty(NamedTuple):
    """What there is to do, who does it, and the answers of who has the duty and who has not."""

    cause: Callable[[Connection], object]
    call: Callable[[Connection], object]
    done: object
    busy: object


DUTIES = {
    "recover": Duty(dies, recover_dead, (1, 1), (0, 0)),
    "ring": Duty(lambda other: over(other, 2, "8 days"), rotate, "emptied shelf 2", "busy"),
    "kept": Duty(
        lambda other: over(other, 9, "40 days", status="failed"),
        lambda other: value(other, "SELECT _pgqueue_sweep(9)"), 1, 0,
    ),
    "statistics": Duty(lambda other: count(other, [5]), roll_up, 1, 0),
    "failures": Duty(note, fold, 1, 0),
    "depth": Duty(
        lambda other: other.execute("DELETE FROM pgqueue_depth"),
        lambda other: value(other, "SELECT _pgqueue_count_depth()"), True, False,
    ),
    "batches": Duty(strands_a_batch, maintenance, (1, 0), (0, 0)),
    "edges": Duty(strands_a_child, maintenance, (0, 1), (0, 0)),
    "lines": Duty(strands_a_line, repair, 1, 0),
    "unpause": Duty(
        strands_a_paused_job, lambda other: value(other, "SELECT _pgqueue_unpause(9)"), 1, None
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DUTIES)
def test_one_supervisor_at_a_time_has_a_duty_and_none_waits(
    one: Connection, other: Connection, name: str
) -> None:
    duty = DUTIES[name]
    duty.cause(other)
    assert value(one, "SELECT _pgqueue_on_duty(%s)", name)
    assert duty.call(other) == duty.busy
    one.rollback()
    with other.transaction(force_rollback=True):
        assert duty.call(other) == duty.done


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
    """It gives way only because of its own lock timeout, for which those who come after it may wait.
    Without one, it would wait until it is cancelled.
    """
    one = connect()
    other = connect(autocommit=True, options="-c lock_timeout=0 -c statement_timeout=20s")
    job, neighbor = over(other, 2, "8 days", 2)
    assert retry(one, [job]) == 1
    assert rotate(other) == "gave way to a reader of shelf 2"
    settings = value(other, "SELECT proconfig FROM pg_proc WHERE proname = '_pgqueue_rotate'")
    assert "lock_timeout=50ms" in settings
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


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_a_worker_that_meets_a_minute_in_upkeep_waits_and_is_counted(
    one: Connection, other: Connection, at: str, end: str
) -> None:
    """In another row, unless the upkeep has failed."""
    count(other, [5], 1, at=at)
    assert roll_up(one) == 1
    behind(one, other, count, [5], 2, at=at, end=end)
    assert set(counted(other).values()) == {(3, 3)}
    assert roll_up(other) == 1
    assert set(counted(other).values()) == {(3, 3)}


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
    assert value(one, "SELECT _pgqueue_on_duty('failures')")
    forget(other)
    assert FailureGroup.objects.exists(), "another supervisor adds failures to groups"
    one.rollback()
    forget(other)
    assert not FailureGroup.objects.exists()
