"""Statements that read history, or rows that are dead and cannot be vacuumed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from django_pgqueue.jobs.claim import claim_sql
from tests.support.history import fresh_ring
from tests.support.jobs import Range, add, claim, rotate, value
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
from tests.support.sessions import Connect, Connection

pytestmark = pytest.mark.django_db(transaction=True)

MANY = 20_000


@pytest.fixture
def one(connect: Connect) -> Iterator[Connection]:
    connection = connect(autocommit=True)
    with fresh_ring(connection):
        yield connection


@pytest.mark.parametrize("analyzed", [True, False])
@pytest.mark.parametrize(("age", "answer"), [("8 days", "emptied shelf 2"), ("1 day", "waiting for shelf 2")])
def test_rotation(one: Connection, age: str, answer: str, analyzed: bool) -> None:
    finished = f"clock_timestamp() - interval '{age}' - n * interval '1 ms'"
    if analyzed:
        fill(one, "pgqueue_job_past_2", MANY, shelf="2", status="'done'", finished_at=finished)
    else:
        fill(one, "pgqueue_job_past_3", MANY, shelf="3", status="'done'", finished_at=finished)
        one.execute("UPDATE pgqueue_ring SET current = 2")
        one.execute("DELETE FROM pg_statistic WHERE starelid = 'pgqueue_job_past_3'::regclass")
        answer = answer.replace("2", "3")
    for mode in MODES:
        one.execute(f"SET plan_cache_mode = {mode}")
        with reads(one) as counts:
            assert rotate(one) == answer
        assert counts.of(*HISTORY) <= 10, (mode, counts)


def test_sweep(one: Connection) -> None:
    # Most rows stay for years. The rows to delete are found without reading the others.
    fill(one, "pgqueue_job_kept", MANY, shelf="9", status="'failed'",
         queue_name="CASE n % 3 WHEN 0 THEN 'a' ELSE 'b' END",
         finished_at="clock_timestamp() - n * interval '1 second'")  # fmt: skip
    fill(one, "pgqueue_job_kept", 200, shelf="9", status="'failed'", queue_name="'b'",
         finished_at="clock_timestamp() - interval '40 days'")  # fmt: skip
    for mode in MODES:
        one.execute(f"SET plan_cache_mode = {mode}")
        with reads(one) as counts:
            assert value(one, "SELECT _pgqueue_sweep(100)") == 100
        assert counts.of("pgqueue_job_kept") <= 500, (mode, counts)


def test_a_mark_jumps_over_the_dead_entries_under_a_held_snapshot(one: Connection, connect: Connect) -> None:
    snapshot = connect()
    fill(one, LIVE, MANY, run_after="clock_timestamp() - interval '1 hour' + n * interval '1 ms'")
    snapshot.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    snapshot.execute("SELECT count(*) FROM pgqueue_job")
    last = one.execute(
        f"SELECT run_after, id FROM {LIVE} ORDER BY run_after DESC, id DESC LIMIT 1"
    ).fetchone()
    assert last is not None
    one.execute(f"DELETE FROM {LIVE}")
    new = add(one, 20)
    by_mark = Range(mark=last[0], mark_id=last[1])
    for mode in MODES:
        one.execute(f"SET plan_cache_mode = {mode}")
        for where, found in (("mark", by_mark), ("start", Range())):
            with reads(one) as counts:
                assert [row.id for row in claim(one, ranges=[found])] == new
            if where == "mark":
                assert counts.of(CLAIM_INDEX) <= 2 * len(new), (mode, counts)
            else:
                assert counts.of(CLAIM_INDEX) > MANY, "the dead entries are there"
        touched = {
            where: buffers(plan(one, claim_sql(), claim_parameters(found), analyze=True))
            for where, found in (("mark", by_mark), ("start", Range()))
        }
        assert touched["mark"] < 400, (mode, touched)
        assert touched["mark"] < touched["start"] - 400, (mode, touched)
    # The same for the search, which a worker with marks does without a rescan.
    with reads(one) as counts:
        query = "SELECT count(*) FROM _pgqueue_first_due(NULL, '{}', '{default}', '{f}', '{0}', %s, %s)"
        assert value(one, query, [last[0]], [last[1]]) == 1
    assert counts.of("pgqueue_job") <= 10, counts
