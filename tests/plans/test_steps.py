"""Statements about steps, beside a hundred thousand steps of other jobs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pytest_django import DjangoDbBlocker

from tests.support.jobs import cancel, finish, retry, value
from tests.support.plans import MODES, fill, reads
from tests.support.sessions import Connection, open_raw

from .statements import LIVE

pytestmark = pytest.mark.django_db

JOBS = 10_000
STEPS = 10  # of each job
RECORD = "SELECT _pgqueue_record_step(%s, 1, %s, 1, %s, 0.1, NULL, '1')"


@pytest.fixture(scope="module")
def filled(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[Connection]:
    """Running jobs that have steps, and as many without."""
    with django_db_blocker.unblock():
        connection = open_raw()
    with connection:
        fill(connection, LIVE, 2 * JOBS, id="n", status="'running'", worker="1", lease="1",
             marks=f"(n <= {JOBS})::integer")  # fmt: skip
        connection.execute(
            "INSERT INTO pgqueue_step (job_id, name, finished_at, result)"
            " SELECT job, 'step-' || n, clock_timestamp(), '1'"
            " FROM generate_series(1, %s) AS job, generate_series(1, %s) AS n", (JOBS, STEPS),
        )  # fmt: skip
        connection.execute("ANALYZE pgqueue_step")
        yield connection
        connection.execute("TRUNCATE pgqueue_job, pgqueue_step")


@pytest.fixture(params=MODES)
def one(filled: Connection, request: pytest.FixtureRequest) -> Connection:
    """Remove the dead rows that other tests have left."""
    filled.execute(f"VACUUM (INDEX_CLEANUP on) {LIVE}, pgqueue_step")
    filled.execute(f"SET plan_cache_mode = {request.param}")
    return filled


@pytest.mark.parametrize("first", [True, False])
def test_a_record_reads_the_row_of_its_job(one: Connection, first: bool) -> None:
    with reads(one) as counts:
        assert value(one, RECORD, 5, first, "new") == "recorded"
    assert counts.of("pgqueue_job") <= 4, counts
    assert counts.of("pgqueue_step") <= 2, counts


def test_a_finish_reads_the_steps_of_its_jobs(one: Connection) -> None:
    with reads(one) as counts:
        assert len(finish(one, list(range(1, 51)))) == 50
    most = 4 * 50 * STEPS + 50  # the table and its index, to fold and to delete
    assert counts.of("pgqueue_step") <= most, counts


def test_a_finish_of_jobs_without_steps_does_not_read_the_table(one: Connection) -> None:
    with reads(one) as counts:
        assert len(finish(one, list(range(JOBS + 1, JOBS + 51)))) == 50
    assert counts.of("pgqueue_step") == 0, counts


def test_a_retry_brings_the_steps_back(one: Connection) -> None:
    with reads(one) as counts:
        finish(one, [7], "failed")
        assert retry(one, [7]) == 1
        assert cancel(one, [7]) == 1
    assert counts.of("pgqueue_step") <= 12 * STEPS, counts


def test_a_wait_and_a_signal_read_one_step(one: Connection) -> None:
    with reads(one) as counts:
        value(one, "SELECT held FROM _pgqueue_wait(9, 1, 'approved', 'event', 60)")
        assert value(one, "SELECT pgqueue_send_event(9, 'approved', '1')") is True
    assert counts.of("pgqueue_step") <= 2 * STEPS + 12, counts  # the number of its steps is limited
    assert counts.of("pgqueue_job") <= 12, counts
