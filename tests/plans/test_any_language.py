"""The claim by SQL, beside a hundred thousand jobs that are due, half as many that are not, and history."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pytest_django import DjangoDbBlocker

from tests.support.foreign import register, sql_claim
from tests.support.plans import MODES, fill, reads
from tests.support.sessions import Connection, open_raw

from .statements import CLAIM_INDEX, HISTORY, LIVE

pytestmark = pytest.mark.django_db

MANY = 100_000
BATCH = 50


@pytest.fixture(scope="module")
def filled(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[Connection]:
    """Ready jobs in two queues, and in one of them jobs of a higher priority that are not due."""
    with django_db_blocker.unblock():
        connection = open_raw()
    with connection:
        fill(connection, LIVE, MANY, queue_name="CASE WHEN n % 10 = 0 THEN 'mail' ELSE 'default' END",
             run_after="clock_timestamp() - interval '1 day' + n * interval '1 ms'")  # fmt: skip
        fill(
            connection, LIVE, MANY // 2, priority="50", run_after="clock_timestamp() + n * interval '1 hour'"
        )
        fill(connection, "pgqueue_job_kept", 1_000, shelf="9", status="'failed'", finished_at="now()")
        yield connection
        connection.execute("TRUNCATE pgqueue_job, pgqueue_worker")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("at_most", [1, BATCH])
@pytest.mark.parametrize("queues", [[], ["mail", "nobody"]])
def test_a_claim_reads_what_it_returns(
    filled: Connection, mode: str, at_most: int, queues: list[str]
) -> None:
    filled.execute(f"SET plan_cache_mode = {mode}")
    worker = register(filled)
    for _ in range(7):  # after five calls, a function may change to a generic plan
        filled.execute(f"VACUUM (INDEX_CLEANUP on) {LIVE}")
        with reads(filled) as counts:
            assert len(sql_claim(filled, worker, at_most, queues)) == at_most
        # A few more entries tell which ranges there are: a step of the search reads up to 16.
        assert 1 <= counts.of(CLAIM_INDEX) <= at_most + 3 * 16 + 2, counts
        assert counts.of("pgqueue_job") <= 9 * at_most + 3 * 16 + 2, counts
        assert counts.of(*HISTORY) == 0


@pytest.mark.parametrize("mode", MODES)
def test_a_claim_does_not_read_what_is_not_due(filled: Connection, mode: str) -> None:
    filled.execute(f"SET plan_cache_mode = {mode}")
    fill(filled, LIVE, 3, queue_name="'few'")
    fill(filled, LIVE, 5_000, queue_name="'few'", run_after="clock_timestamp() + n * interval '1 hour'")
    worker = register(filled)
    with reads(filled) as counts:
        assert len(sql_claim(filled, worker, BATCH, ["few"])) == 3
    filled.execute(f"DELETE FROM {LIVE} WHERE queue_name = 'few'")
    assert counts.of(CLAIM_INDEX) <= 3 + 2 * 16 + 2, counts


@pytest.mark.parametrize("mode", MODES)
def test_a_claim_passes_over_dead_entries_only_once(filled: Connection, mode: str) -> None:
    filled.execute(f"SET plan_cache_mode = {mode}")
    dead = 4_000
    filled.execute(f"VACUUM (INDEX_CLEANUP on) {LIVE}")
    fill(filled, LIVE, dead, queue_name="'dead'")
    worker = register(filled)
    with open_raw(autocommit=False) as holder:
        holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        holder.execute("SELECT 1")  # takes a snapshot, so that the entries cannot be marked as dead
        filled.execute(f"DELETE FROM {LIVE} WHERE queue_name = 'dead'")
        fill(filled, LIVE, 1, queue_name="'dead'")
        with reads(filled) as counts:
            assert len(sql_claim(filled, worker, BATCH, ["dead"])) == 1
    filled.execute(f"DELETE FROM {LIVE} WHERE queue_name = 'dead'")
    assert dead <= counts.of(CLAIM_INDEX) <= 1.2 * dead, counts
