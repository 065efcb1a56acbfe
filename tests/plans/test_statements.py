"""Each statement of the tables reads no more than its entry says, with a custom and with a generic plan."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from pytest_django import DjangoDbBlocker

from django_pgqueue import enqueue
from django_pgqueue.jobs.claim import claim_sql
from django_pgqueue.jobs.finish import Kind, Outcome, finish_statement
from django_pgqueue.maintenance.rounds import Rounds
from django_pgqueue.postgres import session as session_module
from django_pgqueue.postgres.session import Session, connect as connect_worker
from django_pgqueue.worker.producer.claimer import FIRST_DUE_SQL
from django_pgqueue.worker.producer.inbox import _RUNNING_SQL
from tests.app import worker_tasks as tasks
from tests.support.figures import fresh_ring
from tests.support.jobs import LONG_AGO, Range, add, claim, register, rotate, sql_claim, value
from tests.support.plans import (
    CLAIM_INDEX,
    HISTORY,
    LIVE,
    MODES,
    buffers,
    claim_parameters,
    fill,
    plan,
    reads,
)
from tests.support.sessions import Connect, Connection, open_raw
from tests.support.waiting import until
from tests.support.workers import fresh, run_due

from . import backlogs, lists, parts
from .table import Room, Statement

pytestmark = pytest.mark.django_db

ROOMS = [*backlogs.ROOMS, *parts.COUNTS, *parts.ROOMS, *lists.ROOMS]

_HELD = """
    SELECT pid, backend_type, state, query FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid()
        AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL)
"""


class Rooms:
    """The rows of one room at a time. They are made once for all statements in a row."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._room: Room | None = None

    def enter(self, room: Room | None) -> None:
        """Make the rows of a room, unless they are there, after those of another one are removed."""
        if room is self._room:
            return
        for left in (self._room, room):  # other tests may have left dead rows
            if left is not None:
                self.connection.execute(f"TRUNCATE {left.tables} CASCADE")
        self._room = room
        if room is not None:
            room.make(self.connection)


@pytest.fixture(scope="module")
def rooms(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[Rooms]:
    with django_db_blocker.unblock():
        connection = open_raw()
    with connection:
        rooms = Rooms(connection)
        yield rooms
        rooms.enter(None)


@pytest.fixture
def one(rooms: Rooms, room: Room) -> Connection:
    """Remove the dead rows that other statements have left. A snapshot, such as that of autovacuum, keeps
    them.
    """
    rooms.enter(room)
    if room.vacuum:
        until(lambda: not rooms.connection.execute(_HELD).fetchall(), what="no held snapshot")
        rooms.connection.execute(f"VACUUM (INDEX_CLEANUP on) {room.vacuum}")
    return rooms.connection


@pytest.mark.promise("why-cost")
@pytest.mark.parametrize(("room", "statement", "mode"), [case for room in ROOMS for case in room.cases()])
def test_a_statement_reads_no_more_than_it_may(
    one: Connection, statement: Statement, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for target, other in statement.patched.items():
        monkeypatch.setattr(target, other)
    one.execute(f"SET plan_cache_mode = {mode}")
    statement.check(one)


@pytest.mark.parametrize("room", ROOMS[-1:], ids=["the last one"])
@pytest.mark.parametrize("mode", MODES)
def test_a_claim_by_sql_passes_over_dead_entries_only_once(one: Connection, mode: str) -> None:
    one.execute(f"SET plan_cache_mode = {mode}")
    dead = 4_000
    fill(one, LIVE, dead, queue_name="'dead'")
    worker = register(one)
    with open_raw(autocommit=False) as holder:
        holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        holder.execute("SELECT 1")  # takes a snapshot, so that the entries cannot be marked as dead
        one.execute(f"DELETE FROM {LIVE} WHERE queue_name = 'dead'")
        fill(one, LIVE, 1, queue_name="'dead'")
        with reads(one) as counts:
            assert len(sql_claim(one, worker, 50, ["dead"])) == 1
    one.execute(f"DELETE FROM {LIVE} WHERE queue_name = 'dead'")
    assert dead <= counts.of(CLAIM_INDEX) <= 1.2 * dead, counts


# --- Statements that read history, or rows that are dead and cannot be vacuumed


MANY = 20_000


@pytest.fixture
def committed(connect: Connect) -> Iterator[Connection]:
    connection = connect(autocommit=True)
    with fresh_ring(connection):
        yield connection


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("analyzed", [True, False])
@pytest.mark.parametrize(("age", "answer"), [("8 days", "emptied shelf 2"), ("1 day", "waiting for shelf 2")])
def test_rotation(committed: Connection, age: str, answer: str, analyzed: bool) -> None:
    finished = f"clock_timestamp() - interval '{age}' - n * interval '1 ms'"
    if analyzed:
        fill(committed, "pgqueue_job_past_2", MANY, shelf="2", status="'done'", finished_at=finished)
    else:
        fill(committed, "pgqueue_job_past_3", MANY, shelf="3", status="'done'", finished_at=finished)
        committed.execute("UPDATE pgqueue_ring SET current = 2")
        committed.execute("DELETE FROM pg_statistic WHERE starelid = 'pgqueue_job_past_3'::regclass")
        answer = answer.replace("2", "3")
    for mode in MODES:
        committed.execute(f"SET plan_cache_mode = {mode}")
        with reads(committed) as counts:
            assert rotate(committed) == answer
        assert counts.of(*HISTORY) <= 10, (mode, counts)


@pytest.mark.django_db(transaction=True)
def test_sweep(committed: Connection) -> None:
    # Most rows stay for years. The rows to delete are found without reading the others.
    fill(committed, "pgqueue_job_kept", MANY, shelf="9", status="'failed'",
         queue_name="CASE n % 3 WHEN 0 THEN 'a' ELSE 'b' END",
         finished_at="clock_timestamp() - n * interval '1 second'")  # fmt: skip
    fill(committed, "pgqueue_job_kept", 200, shelf="9", status="'failed'", queue_name="'b'",
         finished_at="clock_timestamp() - interval '40 days'")  # fmt: skip
    for mode in MODES:
        committed.execute(f"SET plan_cache_mode = {mode}")
        with reads(committed) as counts:
            assert value(committed, "SELECT _pgqueue_sweep(100)") == 100
        assert counts.of("pgqueue_job_kept") <= 500, (mode, counts)


@pytest.mark.django_db(transaction=True)
def test_a_mark_jumps_over_the_dead_entries_under_a_held_snapshot(
    committed: Connection, connect: Connect
) -> None:
    snapshot = connect()
    fill(committed, LIVE, MANY, run_after="clock_timestamp() - interval '1 hour' + n * interval '1 ms'")
    snapshot.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    snapshot.execute("SELECT count(*) FROM pgqueue_job")
    last = committed.execute(
        f"SELECT run_after, id FROM {LIVE} ORDER BY run_after DESC, id DESC LIMIT 1"
    ).fetchone()
    assert last is not None
    committed.execute(f"DELETE FROM {LIVE}")
    new = add(committed, 20)
    by_mark = Range(mark=last[0], mark_id=last[1])
    for mode in MODES:
        committed.execute(f"SET plan_cache_mode = {mode}")
        for where, found in (("mark", by_mark), ("start", Range())):
            with reads(committed) as counts:
                assert [row.id for row in claim(committed, ranges=[found])] == new
            if where == "mark":
                assert counts.of(CLAIM_INDEX) <= 2 * len(new), (mode, counts)
            else:
                assert counts.of(CLAIM_INDEX) > MANY, "the dead entries are there"
        touched = {
            where: buffers(plan(committed, claim_sql(), claim_parameters(found), analyze=True))
            for where, found in (("mark", by_mark), ("start", Range()))
        }
        assert touched["mark"] < 400, (mode, touched)
        assert touched["mark"] < touched["start"] - 400, (mode, touched)
    # The same for the search, which a worker with marks does without a rescan.
    with reads(committed) as counts:
        query = "SELECT count(*) FROM _pgqueue_first_due(NULL, '{}', '{default}', '{f}', '{0}', %s, %s)"
        assert value(committed, query, [last[0]], [last[1]]) == 1
    assert counts.of("pgqueue_job") <= 10, counts


# --- Plans that a session has kept from the time when the table of live jobs was empty


MANY_PREPARED = 20_000
BATCH = 50


@pytest.fixture
def session(connect: Connect) -> Iterator[Session]:
    """A session of a worker. Nobody analyzes the table of live jobs unless a test does."""
    owner = connect(autocommit=True)
    owner.execute(f"ALTER TABLE {LIVE} SET (autovacuum_enabled = false)")
    try:
        with closing(connect_worker("default")) as session:
            yield session
    finally:
        owner.execute(f"ALTER TABLE {LIVE} RESET (autovacuum_enabled)")


NOTHING: tuple[list[Any], ...] = ([], [], [], [], [])


def statements(ids: list[int]) -> dict[str, tuple[str, Any]]:
    """Return the frequent statements of a worker, with parameters for these jobs."""
    known = (["default"], [False], [0], [LONG_AGO], [0])
    kinds: tuple[Kind, ...] = ("done", "failed", "cancelled", "retry", "snooze", "release")
    return {
        "claim": (claim_sql(), claim_parameters(Range(), limit=BATCH)),
        "search": (FIRST_DUE_SQL, (None, [], *known, 500)),
        "rescan": (FIRST_DUE_SQL, (None, [], *NOTHING, 500)),
        "cancels": (_RUNNING_SQL, (ids,)),
        **{kind: finish_statement([Outcome(job, 1, kind, error="{}") for job in ids]) for kind in kinds},
    }


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("analyzed", [True, False])
def test_plans_that_were_made_on_an_empty_table_are_made_anew(
    session: Session, monkeypatch: pytest.MonkeyPatch, analyzed: bool
) -> None:
    session.connection.execute(f"TRUNCATE {LIVE}")
    # Other tests have left statistics.
    session.connection.execute("DELETE FROM pg_statistic WHERE starelid = %s::regclass", [LIVE])
    if analyzed:
        session.connection.execute(f"ANALYZE {LIVE}")
    for _ in range(3):
        for statement in statements([1, 2]).values():
            session.run(statement)
    with open_raw() as other:  # what it sets would discard the plans of its own session
        run_after = "'2020-01-01'::timestamptz + n * interval '1 ms'"
        fill(other, LIVE, MANY_PREPARED, analyze=False, run_after=run_after)
    rows = session.run((claim_sql(), claim_parameters(Range(), limit=BATCH)))[0]

    monkeypatch.setattr(session_module, "PLANS_LAST", 0.0)
    session.refresh_plans()
    for name, statement in statements([row[0] for row in rows]).items():
        with reads(session.connection) as counts:
            session.run(statement)
        assert counts.of(LIVE, CLAIM_INDEX) <= 10 * BATCH, (name, counts)


@pytest.mark.django_db(transaction=True)
def test_workers_and_supervisors_plan_anew_from_time_to_time(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    refreshed: list[Session] = []
    monkeypatch.setattr(Session, "refresh_plans", lambda self, idle=False: refreshed.append(self))
    run_due()
    assert len(refreshed) == 1  # it has registered
    job = enqueue(tasks.noop)
    run_due()
    assert fresh(job).status == "done"
    assert len(refreshed) == 3  # it has registered and found a job
    Rounds().run(session, 1.0)
    assert refreshed[3:] == [session]
