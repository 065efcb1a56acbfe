"""Statements among a hundred thousand jobs that wait because their task is paused."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pytest_django import DjangoDbBlocker

from tests.support.jobs import Range, add, cancel, claim, edit, finish, value
from tests.support.plans import MODES, fill, reads
from tests.support.sessions import Connection, open_raw

from .statements import HISTORY, LIVE

pytestmark = pytest.mark.django_db

MANY = 100_000
BATCH = 100
UNPAUSE = f"SELECT _pgqueue_unpause({BATCH})"


@pytest.fixture(scope="module")
def filled(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[Connection]:
    """Jobs of two tasks that were put aside, and jobs of the first one that are running."""
    with django_db_blocker.unblock():
        connection = open_raw()
    with connection:
        connection.execute("SELECT pgqueue_pause('task', 'shop.one'), pgqueue_pause('task', 'shop.two')")
        fill(connection, LIVE, MANY, status="'blocked'", waiting_reason="'paused by ann'",
             task_path="CASE WHEN n % 2 = 0 THEN 'shop.one' ELSE 'shop.two' END",
             run_after="clock_timestamp() - interval '1 day' + n * interval '1 ms'")  # fmt: skip
        connection.execute(f"ANALYZE {LIVE}")
        yield connection
        connection.execute("TRUNCATE pgqueue_job")
        connection.execute("DELETE FROM pgqueue_pause")


@pytest.fixture
def one(filled: Connection) -> Connection:
    """Remove the dead rows that other tests have left."""
    filled.execute(f"VACUUM (INDEX_CLEANUP on) {LIVE}")
    return filled


@pytest.mark.parametrize("mode", MODES)
def test_while_they_are_paused_looking_for_jobs_to_continue_reads_one_of_each_task(
    one: Connection, mode: str
) -> None:
    one.execute(f"SET plan_cache_mode = {mode}")
    with reads(one) as counts:
        assert value(one, UNPAUSE) == 0
    assert counts.of("pgqueue_job") <= 8, counts


@pytest.mark.parametrize("mode", MODES)
def test_a_batch_that_continues_reads_only_its_jobs(one: Connection, mode: str) -> None:
    one.execute(f"SET plan_cache_mode = {mode}")
    with reads(one) as counts:
        value(one, "SELECT pgqueue_resume('task', 'shop.two')")
        assert value(one, UNPAUSE) == BATCH
    assert counts.of("pgqueue_job") <= 6 * BATCH, counts
    assert counts.of(*HISTORY) == 0


@pytest.mark.parametrize("mode", MODES)
def test_the_claim_and_the_report_of_a_paused_job_read_none_of_the_others(one: Connection, mode: str) -> None:
    one.execute(f"SET plan_cache_mode = {mode}")
    with reads(one) as counts:
        add(one, BATCH, task_path="shop.one")
        jobs = [row.id for row in claim(one, BATCH, ranges=[Range()])]
        assert finish(one, jobs, "paused", reason="paused") == jobs
    assert len(jobs) == BATCH
    assert counts.of("pgqueue_job") <= 12 * BATCH, counts


def test_edit_and_cancel_by_id(one: Connection) -> None:
    jobs = [row[0] for row in one.execute(f"SELECT id FROM {LIVE} ORDER BY id LIMIT {BATCH}").fetchall()]
    for mode in MODES:
        one.execute(f"SET plan_cache_mode = {mode}")
        with reads(one) as counts:
            assert edit(one, jobs, priority=5) == BATCH
        assert counts.of("pgqueue_job") <= 8 * BATCH, (mode, counts)
        with reads(one) as counts:
            assert cancel(one, jobs) == BATCH
        assert counts.of(LIVE) <= 4 * BATCH, (mode, counts)
