from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from django_pgqueue.lifecycle.claim import claim_sql
from tests.support.history import fresh_ring
from tests.support.jobs import LONG_AGO, Range, add, cancel, claim, finish, retry, rotate, value
from tests.support.plans import MODES, buffers, fill, nodes, plan, reads
from tests.support.sessions import Connect, Connection

pytestmark = pytest.mark.django_db(transaction=True)

MANY = 100_000
BATCH = 50
LIVE, HISTORY = "pgqueue_job_live", ("pgqueue_job_past", "pgqueue_job_kept")
CLAIM_INDEX = "pgqueue_job_claim"


@pytest.fixture
def one(connect: Connect) -> Iterator[Connection]:
    connection = connect(autocommit=True)
    with fresh_ring(connection):
        yield connection


def fill_live(one: Connection) -> None:
    """Ready jobs in two queues, and as many again that are not due, at a higher priority."""
    fill(one, LIVE, MANY, queue_name="CASE WHEN n % 10 = 0 THEN 'mail' ELSE 'default' END",
         run_after="clock_timestamp() - interval '1 day' + n * interval '1 ms'")  # fmt: skip
    fill(one, LIVE, MANY // 2, priority="50", run_after="clock_timestamp() + n * interval '1 hour'")


def claim_parameters(*ranges: Range, limit: int = BATCH) -> dict[str, Any]:
    queues, priorities, marks, mark_ids = (list(column) for column in zip(*ranges, strict=True))
    return {
        "queues": queues, "priorities": priorities, "marks": marks, "mark_ids": mark_ids, "limit": limit,
        "worker": 1,
        "lease": 1,
    }  # fmt: skip


def test_claim(one: Connection) -> None:
    fill_live(one)
    ranges = [Range("default", 50), Range("mail", 0), Range("default", 0)]
    for mode in MODES:
        one.execute(f"SET plan_cache_mode = {mode}")
        found = list(nodes(plan(one, claim_sql("default"), claim_parameters(*ranges))))
        scans = {(node["Node Type"], node.get("Index Name")) for node in found if "Scan" in node["Node Type"]}
        assert ("Index Scan", CLAIM_INDEX) in scans, mode
        assert not {"Seq Scan", "Sort", "Incremental Sort", "Hash Join"} & {
            node["Node Type"] for node in found
        }, mode
        with reads(one) as counts:
            assert len(claim(one, BATCH, ranges=ranges)) == BATCH
        assert counts.of(CLAIM_INDEX) <= BATCH + 1, mode
        assert counts.of("pgqueue_job") <= 4 * BATCH, mode
        assert counts.of(*HISTORY) == 0


def test_claim_of_a_range_with_nothing_due(one: Connection) -> None:
    fill_live(one)
    for mode in MODES:
        one.execute(f"SET plan_cache_mode = {mode}")
        with reads(one) as counts:
            assert claim(one, BATCH, ranges=[Range("default", 50), Range("nobody", 3)]) == []
        assert counts.of("pgqueue_job") == 0, mode


@pytest.mark.parametrize("kind", ["done", "failed", "cancelled", "retry", "snooze", "release"])
def test_finish_whatever_the_statistics_say(one: Connection, kind: str) -> None:
    fill_live(one)
    one.execute("ANALYZE")  # while nothing runs: the index of running jobs looks empty and cheap
    jobs = [row.id for row in claim(one, 1000, ranges=[Range("default", 0)])]
    for mode in MODES:
        one.execute(f"SET plan_cache_mode = {mode}")
        with reads(one) as counts:
            assert len(finish(one, jobs[:BATCH], kind)) == BATCH
        assert counts.of("pgqueue_job_running") == 0, (mode, counts)
        assert counts.of("pgqueue_job") <= 8 * BATCH, (mode, counts)


def test_enqueue_reads_nothing(one: Connection) -> None:
    fill_live(one)
    many = (
        "SELECT pgqueue_enqueue_many_v1(0,"
        " array_fill('a.b'::text, '{100}'), array_fill('[]'::jsonb, '{100}'),"
        " array_fill('{}'::jsonb, '{100}'), array_fill('{}'::jsonb, '{100}'),"
        " array_fill('mail'::text, '{100}'),"
        " array_fill(0, '{100}'), array_fill(NULL::timestamptz, '{100}'), array_fill(NULL::float, '{100}'),"
        " array_fill(NULL::float, '{100}'), array_fill(1, '{100}'), array_fill(NULL::int, '{100}'),"
        " array_fill('rerun'::text, '{100}'), NULL)"
    )
    for mode in MODES:
        one.execute(f"SET plan_cache_mode = {mode}")
        with reads(one) as counts:
            add(one, 10)
            assert len(value(one, many)) == 100
        assert counts.by_relation == {}, mode


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


def test_search_for_ranges(one: Connection) -> None:
    fill_live(one)
    query = "SELECT count(*) FROM pgqueue_heads_v1(%s, '{}', %s, %s, %s, %s)"
    nothing: list[list[Any]] = [[], [], [], []]
    for mode in MODES:
        one.execute(f"SET plan_cache_mode = {mode}")
        for queues in (None, ["default", "mail"]):
            for known in (nothing, [["default"], [0], [LONG_AGO], [0]]):
                with reads(one) as counts:
                    assert value(one, query, queues, *known) == 3
                assert counts.of("pgqueue_job") <= 20, (mode, queues, known, counts)


def test_cancel_and_retry_by_id(one: Connection) -> None:
    fill_live(one)
    for shelf in (1, 5, 9):
        name = "kept" if shelf == 9 else f"past_{shelf}"
        fill(
            one,
            f"pgqueue_job_{name}",
            MANY,
            shelf=str(shelf),
            status="'failed'",
            finished_at="clock_timestamp()",
        )
    waiting = [row[0] for row in one.execute(f"SELECT id FROM {LIVE} ORDER BY id LIMIT {BATCH}").fetchall()]
    over = [
        row[0]
        for row in one.execute(f"SELECT id FROM pgqueue_job_past_5 ORDER BY id LIMIT {BATCH}").fetchall()
    ]
    for mode in MODES:
        one.execute(f"SET plan_cache_mode = {mode}")
        with reads(one) as counts:
            assert cancel(one, waiting) == BATCH
        assert counts.of(LIVE) <= 4 * BATCH, (mode, counts)
        with reads(one) as counts:
            assert retry(one, over) == BATCH
        assert counts.of("pgqueue_job") <= 8 * BATCH, (mode, counts)


def test_sweep(one: Connection) -> None:
    # Most of it stays for years; what has to go is found without reading that.
    fill(one, "pgqueue_job_kept", MANY, shelf="9", status="'failed'",
         queue_name="CASE n % 3 WHEN 0 THEN 'a' ELSE 'b' END",
         finished_at="clock_timestamp() - n * interval '1 second'")  # fmt: skip
    fill(one, "pgqueue_job_kept", 200, shelf="9", status="'failed'", queue_name="'b'",
         finished_at="clock_timestamp() - interval '40 days'")  # fmt: skip
    for mode in MODES:
        one.execute(f"SET plan_cache_mode = {mode}")
        with reads(one) as counts:
            assert value(one, "SELECT pgqueue_sweep_v1(100)") == 100
        assert counts.of("pgqueue_job_kept") <= 500, (mode, counts)


def test_a_mark_jumps_over_the_dead_entries_under_a_held_snapshot(one: Connection, connect: Connect) -> None:
    snapshot = connect()
    fill(one, LIVE, 20_000, run_after="clock_timestamp() - interval '1 hour' + n * interval '1 ms'")
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
                assert counts.of(CLAIM_INDEX) > 20_000, "the dead entries are there"
        touched = {
            where: buffers(plan(one, claim_sql("default"), claim_parameters(found), analyze=True))
            for where, found in (("mark", by_mark), ("start", Range()))
        }
        assert touched["mark"] < 400, (mode, touched)
        assert touched["mark"] < touched["start"] - 400, (mode, touched)
    # The same for the search, which a worker with marks does without a rescan.
    with reads(one) as counts:
        query = "SELECT count(*) FROM pgqueue_heads_v1(NULL, '{}', '{default}', '{0}', %s, %s)"
        assert value(one, query, [last[0]], [last[1]]) == 1
    assert counts.of("pgqueue_job") <= 10, counts
