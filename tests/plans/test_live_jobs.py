"""Statements that read live jobs. A hundred thousand jobs are inserted once for all tests in this module."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from pytest_django import DjangoDbBlocker

from django_pgqueue.admin.jobs.search import order_of_jobs
from django_pgqueue.jobs.claim import claim_sql
from django_pgqueue.management._job_filters import Filters
from django_pgqueue.management.subcommands.jobs import readable
from django_pgqueue.models import Job
from django_pgqueue.models.job import Status
from django_pgqueue.models.joins import LIVE_SQL
from tests.support.jobs import LONG_AGO, Range, add, cancel, claim, finish, retry, value
from tests.support.plans import MODES, fill, nodes, plan, reads
from tests.support.sessions import Connection, open_raw
from tests.support.waiting import until

from .statements import CLAIM_INDEX, HISTORY, LIVE, claim_parameters

pytestmark = pytest.mark.django_db

MANY = 100_000
OVER = 20_000  # jobs on each of three shelves of history
BATCH = 50


@pytest.fixture(scope="module")
def filled(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[Connection]:
    """Ready jobs in two queues, half as many that are not due, at a higher priority, and some history."""
    with django_db_blocker.unblock():
        connection = open_raw()
    with connection:
        fill(connection, LIVE, MANY, queue_name="CASE WHEN n % 10 = 0 THEN 'mail' ELSE 'default' END",
             run_after="clock_timestamp() - interval '1 day' + n * interval '1 ms'")  # fmt: skip
        fill(
            connection, LIVE, MANY // 2, priority="50", run_after="clock_timestamp() + n * interval '1 hour'"
        )
        for shelf, name in ((1, "past_1"), (5, "past_5"), (9, "kept")):
            fill(connection, f"pgqueue_job_{name}", OVER, shelf=str(shelf), status="'failed'",
                 finished_at="clock_timestamp()")  # fmt: skip
        yield connection
        connection.execute("TRUNCATE pgqueue_job")


@pytest.fixture
def one(filled: Connection) -> Connection:
    """Remove the dead rows that other tests have left. A snapshot, such as that of autovacuum, keeps them."""
    until(lambda: not filled.execute(_HELD).fetchall(), what="no held snapshot")
    filled.execute(f"VACUUM (INDEX_CLEANUP on) {LIVE}")
    return filled


_HELD = """
    SELECT pid, backend_type, state, query FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid()
        AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL)
"""


def test_claim(one: Connection) -> None:
    ranges = [Range("default", 50), Range("mail", 0), Range("default", 0)]
    for mode in MODES:
        one.execute(f"SET plan_cache_mode = {mode}")
        found = list(nodes(plan(one, claim_sql(), claim_parameters(*ranges))))
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
    for mode in MODES:
        one.execute(f"SET plan_cache_mode = {mode}")
        with reads(one) as counts:
            assert claim(one, BATCH, ranges=[Range("default", 50), Range("nobody", 3)]) == []
        assert counts.of("pgqueue_job") == 0, mode


def test_finish_whatever_the_statistics_say(one: Connection) -> None:
    one.execute("ANALYZE")  # no job runs yet, so the index of running jobs looks empty and cheap
    jobs = [row.id for row in claim(one, 1000, ranges=[Range("default", 0)])]  # 1 in 100 stays running
    for kind in ("done", "failed", "cancelled", "retry", "snooze", "release"):
        for mode in MODES:
            one.execute(f"SET plan_cache_mode = {mode}")
            with reads(one) as counts:
                assert len(finish(one, jobs[:BATCH], kind)) == BATCH
            assert counts.of("pgqueue_job_running") == 0, (kind, mode, counts)
            assert counts.of("pgqueue_job") <= 8 * BATCH, (kind, mode, counts)


def test_enqueue_reads_no_jobs(one: Connection) -> None:
    """The public function reads the policy of the task: by its key, unless the table has a few pages only."""
    many = (
        "SELECT ids FROM _pgqueue_enqueue_many(0,"
        " array_fill('a.b'::text, '{100}'), array_fill('[]'::jsonb, '{100}'),"
        " array_fill('{}'::jsonb, '{100}'), array_fill('{}'::jsonb, '{100}'),"
        " array_fill('mail'::text, '{100}'),"
        " array_fill(0, '{100}'), array_fill(NULL::timestamptz, '{100}'), array_fill(NULL::float, '{100}'),"
        " array_fill(NULL::float, '{100}'), array_fill(1, '{100}'), array_fill(NULL::int, '{100}'),"
        " array_fill('rerun'::text, '{100}'), NULL, NULL)"
    )
    for mode in MODES:
        one.execute(f"SET plan_cache_mode = {mode}")
        with reads(one) as counts:
            add(one, 10)
            assert len(value(one, many)) == 100
        assert counts.by_relation.keys() <= {"pgqueue_task", "pgqueue_task_pkey"}, mode


def test_search_for_ranges(one: Connection) -> None:
    query = "SELECT count(*) FROM _pgqueue_first_due(%s, '{}', %s, %s, %s, %s, %s)"
    nothing: list[list[Any]] = [[], [], [], [], []]
    for mode in MODES:
        one.execute(f"SET plan_cache_mode = {mode}")
        for queues in (None, ["default", "mail"]):
            for known in (nothing, [["default"], [False], [0], [LONG_AGO], [0]]):
                with reads(one) as counts:
                    assert value(one, query, queues, *known) == 3
                assert counts.of("pgqueue_job") <= 3 * 16 + 2, (mode, queues, known, counts)


def test_cancel_and_retry_by_id(one: Connection) -> None:
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


def test_unique_keys(one: Connection) -> None:
    """A key that is taken is found by its index, by an enqueue and by a job that goes back."""
    kinds = [
        {"unique_key": "500", "unique_scope": scope, "on_conflict": conflict}
        for scope in ("waiting", "live")
        for conflict in ("existing", "replace", "earliest")
    ]
    for mode in MODES:
        one.execute(f"SET plan_cache_mode = {mode}")
        with reads(one) as counts:
            for scope in ("waiting", "live"):
                one.execute(
                    f"INSERT INTO {LIVE} (task_path, unique_key, unique_scope, run_after)"
                    " SELECT 'a.b', n, %s, clock_timestamp() + interval '1 day'"
                    " FROM generate_series(1, 1000) AS n", (scope,),
                )  # fmt: skip
            for options in kinds:
                add(one, options=json.dumps(options))
            running = value(one, "SELECT _pgqueue_twin('500', 'waiting')")
            one.execute(
                f"UPDATE {LIVE} SET status = 'running', lease = 1, attempts = 1 WHERE id = %s", (running,)
            )
            add(one, options='{"unique_key": "500"}')
            assert finish(one, [running], "retry") == [running]
        assert counts.of(LIVE, "pgqueue_job_unique") <= 200, (mode, counts)


@pytest.mark.parametrize("waiters", [1, 100, 1_000])
@pytest.mark.parametrize("mode", MODES)
def test_a_look_for_jobs_that_are_waited_for_reads_these_jobs(
    one: Connection, mode: str, waiters: int
) -> None:
    one.execute(f"SET plan_cache_mode = {mode}")
    rows = one.execute(f"SELECT id FROM {LIVE} ORDER BY random() LIMIT {waiters}").fetchall()
    jobs = [row[0] for row in rows]
    over = one.execute(f"SELECT id FROM pgqueue_job_kept LIMIT {waiters}").fetchall()
    with reads(one) as counts:
        given = [*jobs, *(row[0] for row in over)]
        found = one.execute(LIVE_SQL, (given, given), prepare=True).fetchall()
    assert {row[0] for row in found} == set(jobs)
    assert counts.of(LIVE) <= 2 * waiters
    assert counts.of(*HISTORY) == 0


@pytest.mark.parametrize(
    ("filters", "most"),
    [
        (Filters(), 10 * 51),  # each leaf has its own index of ids
        (Filters(status=(Status.FAILED,)), 60),
        (Filters(key="sku-7"), 20),
        (Filters(worker=7), 20),
        (Filters(batch=7), 20),
        (Filters(fingerprint="f"), 20),
    ],
)
def test_a_list_of_jobs_by_command_reads_as_many_rows_as_it_shows(
    one: Connection, filters: Filters, most: int
) -> None:
    listed = readable(filters.jobs("default")).order_by("-pk")[:51]
    sql, parameters = listed.query.sql_with_params()
    one.execute("SET plan_cache_mode = force_custom_plan")  # Django sends the values in the statement
    with reads(one) as counts:
        one.execute(sql, parameters)
    assert counts.of(LIVE, *HISTORY) <= most, counts


@pytest.mark.usefixtures("one")
@pytest.mark.parametrize("queue", ["", "mail"])
def test_the_list_of_waiting_jobs_reads_the_index_of_the_claim_in_its_order(queue: str) -> None:
    jobs = Job.objects.filter(shelf=0, status="pending", **({"queue_name": queue} if queue else {}))
    with CaptureQueriesContext(connection) as captured:
        assert len(order_of_jobs("default", "pending", queue).keys(jobs, None, BATCH)) == BATCH
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {captured[-1]['sql']}")
        [(found,)] = cursor.fetchall()
    read = [node for node in nodes(found[0]["Plan"]) if node["Node Type"].endswith("Scan")]
    assert {node.get("Index Name") for node in read} == {CLAIM_INDEX}
    assert all(node["Actual Rows"] <= BATCH for node in read)
