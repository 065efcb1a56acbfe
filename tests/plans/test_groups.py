"""Statements about groups, beside a hundred thousand jobs of one group and ten thousand groups of a few."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pytest_django import DjangoDbBlocker

from tests.support.jobs import Range, claim, claim_groups
from tests.support.plans import MODES, fill, reads
from tests.support.sessions import Connection, open_raw

from .statements import CLAIM_INDEX, LIVE

pytestmark = pytest.mark.django_db

GROUP_INDEX = "pgqueue_job_group"
BATCH = 50


@pytest.fixture(scope="module")
def filled(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[Connection]:
    """One large group, many small ones, and in the same queue some jobs without a group."""
    with django_db_blocker.unblock():
        connection = open_raw()
    with connection:
        fill(connection, LIVE, 100_000, group_key="'big'")
        fill(connection, LIVE, 20_000, group_key="'tenant ' || n % 10000")
        fill(connection, LIVE, 1_000)
        yield connection
        connection.execute("TRUNCATE pgqueue_job")


@pytest.fixture
def one(filled: Connection) -> Connection:
    """Remove the dead rows that other tests have left."""
    filled.execute(f"VACUUM (INDEX_CLEANUP on) {LIVE}")
    return filled


def test_a_claim_of_groups_reads_what_it_returns(one: Connection) -> None:
    quotas: dict[str | None, int] = {None: 1, "big": 1, **{f"tenant {number}": 1 for number in range(200)}}
    for mode in MODES:
        one.execute(f"SET plan_cache_mode = {mode}")
        with reads(one) as counts:
            assert len(claim_groups(one, quotas, BATCH)) == BATCH
        assert counts.of(GROUP_INDEX, CLAIM_INDEX) <= BATCH + 2, (mode, counts)
        assert counts.of("pgqueue_job") <= 4 * BATCH, (mode, counts)


def test_a_claim_of_one_large_group_reads_what_it_returns(one: Connection) -> None:
    for mode in MODES:
        one.execute(f"SET plan_cache_mode = {mode}")
        with reads(one) as counts:
            assert len(claim_groups(one, {"big": BATCH}, BATCH)) == BATCH
        assert counts.of(GROUP_INDEX, CLAIM_INDEX) <= BATCH + 2, (mode, counts)


def test_a_claim_of_plain_jobs_does_not_read_groups(one: Connection) -> None:
    for mode in MODES:
        one.execute(f"SET plan_cache_mode = {mode}")
        with reads(one) as counts:
            assert len(claim(one, BATCH, ranges=[Range()])) == BATCH
        assert counts.of(CLAIM_INDEX) <= BATCH + 1, (mode, counts)
        assert counts.of(GROUP_INDEX) == 0, (mode, counts)


def test_a_search_takes_a_probe_for_each_group(one: Connection) -> None:
    query = "SELECT count(*) FROM _pgqueue_groups_after('default', 0, 'tenant 5', 100)"
    for mode in MODES:
        one.execute(f"SET plan_cache_mode = {mode}")
        with reads(one) as counts:
            one.execute(query)
        assert counts.of(GROUP_INDEX) <= 100, (mode, counts)
