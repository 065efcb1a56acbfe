"""The statements that read a workflow for the admin, beside many other jobs with parents and batches."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pytest_django import DjangoDbBlocker

from django_pgqueue.admin import workflow as reading
from tests.support.plans import Reads, fill, reads
from tests.support.sessions import Connection, open_raw

from .statements import LIVE

pytestmark = pytest.mark.django_db

MANY = 20_000  # jobs on each of three shelves
CHILDREN = 4  # of each parent on each shelf
MEMBERS = 50  # of each batch on each shelf
SHELVES = 3


@pytest.fixture(scope="module")
def filled(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[Connection]:
    """Jobs with the ids from 1, 100,001 and 200,001 on. Batch n and parent n have jobs on each shelf."""
    with django_db_blocker.unblock():
        connection = open_raw()
    with connection:
        for place, (leaf, shelf) in enumerate(
            ((LIVE, 0), ("pgqueue_job_past_3", 3), ("pgqueue_job_kept", 9))
        ):
            status, finished = (
                ("'failed'", "clock_timestamp()") if shelf else ("'pending'", "NULL::timestamptz")
            )
            parents = f"ARRAY[n / {CHILDREN}, 500000 + n]::bigint[]"
            fill(connection, leaf, MANY, id=f"{place * 100_000} + n", shelf=str(shelf), parents=parents,
                 batch=f"n / {MEMBERS}", status=status, finished_at=finished)  # fmt: skip
        yield connection
        connection.execute("TRUNCATE pgqueue_job")


def found(connection: Connection, query: str, ids: dict[str, list[int]]) -> tuple[int, Reads]:
    """Return the number of jobs, and what the statement has read."""
    with reads(connection) as counts:
        connection.execute(reading._PINNED)
        rows = connection.execute(query, ids).fetchall()
    return len(rows), counts


@pytest.mark.parametrize("asked", [1, 300])
@pytest.mark.parametrize(("part", "each"), [("ids", 1), ("batches", MEMBERS), ("parents", CHILDREN)])
def test_a_step_reads_the_jobs_that_it_finds(filled: Connection, part: str, each: int, asked: int) -> None:
    expected = asked * each * (1 if part == "ids" else SHELVES)
    query = reading._JOBS + reading._STEPS[part]
    jobs, counts = found(filled, query, {part: list(range(10, 10 + asked))})
    assert jobs == expected
    assert counts.of("pgqueue_job") <= 3 * expected, (
        counts
    )  # an index may count twice: its bitmap and its rows


def test_a_step_in_three_parts_reads_no_more(filled: Connection) -> None:
    query = " UNION ".join(reading._JOBS + condition for condition in reading._STEPS.values())
    jobs, counts = found(filled, f"{query} LIMIT 20001", {part: [10, 11] for part in reading._STEPS})
    assert jobs == 2 + 2 * SHELVES * (MEMBERS + CHILDREN)
    assert counts.of("pgqueue_job") <= 3 * jobs, counts
