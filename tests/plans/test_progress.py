"""The statement that writes progress, beside ten thousand running jobs that have some."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pytest_django import DjangoDbBlocker

from tests.support.jobs import finish, value
from tests.support.plans import MODES, fill, reads
from tests.support.sessions import Connection, open_raw

from .statements import LIVE

pytestmark = pytest.mark.django_db

JOBS = 10_000
WRITE = "SELECT _pgqueue_write_progress(%s, %s, %s::text[], %s::double precision[], %s, %s::text[])"


@pytest.fixture(scope="module")
def filled(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[Connection]:
    """Running jobs that have progress, and as many without."""
    with django_db_blocker.unblock():
        connection = open_raw()
    with connection:
        fill(connection, LIVE, 2 * JOBS, id="n", status="'running'", worker="1", lease="1",
             marks=f"8 * (n <= {JOBS})::integer")  # fmt: skip
        connection.execute(
            "INSERT INTO pgqueue_progress (job_id, done) SELECT n, n FROM generate_series(1, %s) AS n",
            (JOBS,),
        )
        connection.execute("ANALYZE pgqueue_progress")
        yield connection
        connection.execute("TRUNCATE pgqueue_job, pgqueue_progress")


@pytest.fixture(params=MODES)
def one(filled: Connection, request: pytest.FixtureRequest) -> Connection:
    """Remove the dead rows that other tests have left."""
    filled.execute(f"VACUUM (INDEX_CLEANUP on) {LIVE}, pgqueue_progress")
    filled.execute(f"SET plan_cache_mode = {request.param}")
    return filled


def write(connection: Connection, first: int, count: int, *, step: str | None = None) -> int:
    jobs = list(range(first, first + count))
    done = [5.0 if step is None else None] * count
    return len(
        value(connection, WRITE, jobs, [1] * count, [step] * count, done, [None] * count, [""] * count)
    )


def test_a_write_reads_its_jobs_and_their_rows(one: Connection) -> None:
    with reads(one) as counts:
        assert write(one, 1, 50) == 50
    assert counts.of("pgqueue_job") <= 4 * 50, counts
    assert counts.of("pgqueue_progress") <= 4 * 50, counts


def test_a_step_reads_its_jobs_and_no_progress(one: Connection) -> None:
    with reads(one) as counts:
        assert write(one, 101, 50, step="new") == 50
    assert counts.of("pgqueue_job") <= 6 * 50, counts
    assert counts.of("pgqueue_progress") == 0, counts


def test_a_finish_reads_the_progress_of_its_jobs(one: Connection) -> None:
    with reads(one) as counts:
        assert len(finish(one, list(range(201, 251)))) == 50
    assert counts.of("pgqueue_progress") <= 3 * 50, counts


def test_a_finish_of_jobs_without_progress_does_not_read_the_table(one: Connection) -> None:
    with reads(one) as counts:
        assert len(finish(one, list(range(JOBS + 1, JOBS + 51)))) == 50
    assert counts.of("pgqueue_progress") == 0, counts
