"""Statements about payloads, beside tens of thousands of other rows and a long history."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pytest_django import DjangoDbBlocker

from django_pgqueue.models import Job
from tests.receipts.models import Receipt
from tests.support.jobs import value
from tests.support.plans import MODES, fill, reads
from tests.support.sessions import Connection, open_raw

from .statements import LIVE

pytestmark = pytest.mark.django_db

WAITING, DONE = 20_000, 20_000
BY_JOB = "pgqueue_job"


@pytest.fixture(scope="module")
def filled(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[Connection]:
    """Rows whose jobs wait, and more whose jobs are done; ten rows for each order."""
    with django_db_blocker.unblock():
        connection = open_raw()
    with connection:
        path = "'tests.receipts.tasks.send'"
        fill(connection, LIVE, WAITING, id=f"{DONE} + n", task_path=path)
        fill(connection, "pgqueue_job_past_3", DONE, id="n", shelf="3", status="'done'", task_path=path,
             finished_at="clock_timestamp()")  # fmt: skip
        connection.execute(
            "INSERT INTO receipts_order (id, total) SELECT n, 0 FROM generate_series(1, %s) AS n",
            (DONE // 10 + WAITING,),
        )
        _fill_receipts(connection)
        connection.execute("SELECT setval('pgqueue_job_id_seq', 1000000)")
        yield connection
        connection.execute("TRUNCATE pgqueue_job, receipts_receipt, receipts_order CASCADE")
        connection.execute("UPDATE pgqueue_task SET swept_to = 0")


def _fill_receipts(connection: Connection) -> None:
    connection.execute("SET session_replication_role = replica")
    connection.execute(
        "INSERT INTO receipts_receipt (job_id, order_id, email)"
        " SELECT n, 1 + n / 10, 'a@b.c' FROM generate_series(1, %s) AS n", (DONE + WAITING,)
    )  # fmt: skip
    connection.execute("SET session_replication_role = origin")
    connection.execute("ANALYZE receipts_receipt")


@pytest.fixture(params=MODES)
def one(filled: Connection, request: pytest.FixtureRequest) -> Connection:
    """Remove the dead rows that other tests have left."""
    filled.execute(f"VACUUM (INDEX_CLEANUP on) {LIVE}, receipts_receipt")
    filled.execute(f"SET plan_cache_mode = {request.param}")
    return filled


@pytest.mark.parametrize("count", [1, 200])
def test_an_insert_looks_up_its_jobs_by_their_keys(one: Connection, count: int) -> None:
    insert = "INSERT INTO receipts_receipt (order_id, email) SELECT 1, 'x' FROM generate_series(1, %s)"
    with reads(one) as counts:
        one.execute(insert, (count,))
    assert counts.of(BY_JOB) <= 4 * count, counts


def test_a_deletion_reads_the_live_jobs_of_its_rows(one: Connection) -> None:
    with reads(one) as counts:
        one.execute("DELETE FROM receipts_receipt WHERE order_id = %s", (DONE // 10 + 50,))
    assert counts.of(BY_JOB) <= 20 * 10, counts
    with reads(one) as counts:
        one.execute("DELETE FROM receipts_receipt WHERE order_id = 7")
    assert counts.of(BY_JOB) == 0, counts  # their jobs have finished


def test_a_page_of_the_sweep_reads_a_page(one: Connection) -> None:
    one.execute("UPDATE pgqueue_task SET swept_to = 10000")
    with reads(one) as counts:
        assert value(one, "SELECT swept FROM _pgqueue_sweep_payloads(500)") == 0
    assert counts.of("receipts_receipt") <= 1_001, counts
    assert counts.of(BY_JOB) <= 2 * 501, counts


def explained(rows: Any) -> str:
    text: str = rows.explain()
    return text


def test_a_filter_by_a_status_leaves_out_the_leaves_that_cannot_have_it(filled: Connection) -> None:
    waiting = explained(Receipt.objects.filter(job__status="pending"))
    assert LIVE in waiting
    assert "pgqueue_job_past" not in waiting
    failed = explained(Receipt.objects.filter(job__status="failed"))
    assert LIVE not in failed


def test_the_jobs_of_an_order_are_found_by_indexes(filled: Connection) -> None:
    of_order = explained(Job.objects.filter(receipts_receipt__order_id=7))
    for leaf in (LIVE, "pgqueue_job_past_3"):
        assert f"{leaf}_pkey" in of_order
    assert f"Seq Scan on {LIVE}" not in of_order
    assert "Seq Scan on pgqueue_job_past_3" not in of_order
    assert "Seq Scan on receipts_receipt" not in of_order
