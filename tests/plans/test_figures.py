"""What the figures read: a bounded number of rows, however many jobs wait."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pytest_django import DjangoDbBlocker

from django_pgqueue.monitoring.limits import WAITING
from tests.support.plans import MODES, fill, reads
from tests.support.sessions import Connection, open_raw

from .statements import CLAIM_INDEX, HISTORY, LIVE

pytestmark = pytest.mark.django_db

MANY = 50_000


@pytest.fixture(scope="module")
def one(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[Connection]:
    """Two queues and two priorities; half of the jobs are due, a tenth wait for a key, and a hundredth run.
    The statistics of the table are from before they came.
    """
    with django_db_blocker.unblock():
        connection = open_raw()
    with connection:
        connection.execute(f"ANALYZE {LIVE}")
        fill(
            connection, LIVE, MANY, analyze=False,
            queue_name="CASE WHEN n % 10 = 0 THEN 'mail' ELSE 'default' END", priority="n % 2",
            run_after="clock_timestamp() + (n - 25000) * interval '1 minute'", worker="n % 4",
            status="CASE WHEN n % 10 = 5 THEN 'blocked' WHEN n % 100 = 1 THEN 'running' ELSE 'pending' END",
            limit_key="CASE WHEN n % 10 = 5 THEN 'key' || n % 50 END",
            wait_position="CASE WHEN n % 10 = 5 AND n % 4 = 1 THEN n END",
            waiting_reason="CASE WHEN n % 10 = 5 AND n % 4 = 3 THEN 'waits for job 1' ELSE '' END",
        )  # fmt: skip
        fill(connection, "pgqueue_job_kept", 1000, shelf="9", status="'failed'",
             finished_at="clock_timestamp()")  # fmt: skip
        yield connection
        connection.execute("TRUNCATE pgqueue_job")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("analyzed", [False, True])
def test_the_depth_reads_as_many_jobs_as_it_counts(one: Connection, mode: str, analyzed: bool) -> None:
    if analyzed:
        one.execute(f"ANALYZE {LIVE}")
    one.execute(f"SET plan_cache_mode = {mode}")
    with reads(one) as counts:
        rows = one.execute("SELECT queue_name, ready FROM _pgqueue_depth(100)").fetchall()
    assert {name for name, ready in rows if ready >= 100} == {"default", "mail"}
    probes = 60  # each reads up to 16 entries
    # Of two queues: what is due, and what is not due, of which the status is read as well.
    assert counts.of(CLAIM_INDEX) <= 2 * 3 * 100 + probes, counts
    assert counts.of("pgqueue_job_running", "pgqueue_job_line", "pgqueue_job_waits") <= 3 * 100, counts
    assert counts.of(LIVE) <= 7 * 100 + probes, counts
    assert counts.of(*HISTORY) == 0


@pytest.mark.parametrize("analyzed", [False, True])
def test_what_waits_for_a_limit_is_counted_up_to_a_number(one: Connection, analyzed: bool) -> None:
    if analyzed:  # with VACUUM: until then a bitmap of a line this short seems to cost less
        one.execute(f"VACUUM (ANALYZE) {LIVE}")
    one.execute("INSERT INTO pgqueue_limit (name, concurrency) VALUES ('key5', 1)")
    try:
        with reads(one) as counts:
            found = one.execute(f"SELECT ({WAITING}) FROM pgqueue_limit", (100, 100)).fetchall()
    finally:
        one.execute("DELETE FROM pgqueue_limit")
    assert found == [(100,)]
    assert counts.of(LIVE, "pgqueue_job_line") <= 3 * 100, counts
    assert counts.of(*HISTORY) == 0
