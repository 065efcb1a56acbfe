"""Statements about limits, beside a line of a hundred thousand jobs and ten thousand lines of a few."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pytest_django import DjangoDbBlocker

from django_pgqueue.admin.jobs.search import search
from django_pgqueue.maintenance.rounds import IN_USE_SQL
from django_pgqueue.models import Job
from tests.support.jobs import Range, claim, finish
from tests.support.keys import release, repair, set_limit
from tests.support.plans import MODES, fill, reads
from tests.support.sessions import Connection, open_raw

from .statements import CLAIM_INDEX, LIVE

pytestmark = pytest.mark.django_db

LINE = 100_000
KEYS = 10_000
BATCH = 50


@pytest.fixture(scope="module")
def filled(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[Connection]:
    """A long line, plain jobs, and in another queue the jobs of many keys."""
    with django_db_blocker.unblock():
        connection = open_raw()
    with connection:
        fill(connection, LIVE, LINE, limit_key="'long'", wait_position="n", status="'blocked'")
        fill(
            connection,
            LIVE,
            1,
            limit_key="'long'",
            wait_position="0",
            status="'running'",
            worker="1",
            lease="1",
        )
        fill(connection, LIVE, 10, limit_key="'long'", wait_position=f"{LINE} + n", queue_name="'zoo'")
        fill(connection, LIVE, 1_000)
        status = f"CASE WHEN n <= {KEYS} THEN 'pending' ELSE 'blocked' END"
        fill(connection, LIVE, 2 * KEYS, queue_name="'keyed'", limit_key=f"'key/' || n % {KEYS}",
             wait_position="n", status=status)  # fmt: skip
        yield connection
        connection.execute("TRUNCATE pgqueue_job")


@pytest.fixture
def one(filled: Connection) -> Connection:
    """Remove the dead rows that other tests have left."""
    filled.execute(f"VACUUM (INDEX_CLEANUP on) {LIVE}")
    return filled


def test_a_claim_of_plain_jobs_does_not_read_the_line(one: Connection) -> None:
    for mode in MODES:
        one.execute(f"SET plan_cache_mode = {mode}")
        with reads(one) as counts:
            assert len(claim(one, BATCH)) == BATCH
        assert counts.of(CLAIM_INDEX) <= BATCH + 1, mode
        assert counts.of("pgqueue_job") <= 4 * BATCH, (mode, counts)


def test_the_gate_does_not_read_the_line_of_a_key_in_another_queue(one: Connection) -> None:
    for mode in MODES:
        with one.transaction(force_rollback=True):
            one.execute(f"SET plan_cache_mode = {mode}")
            set_limit(one, "long", 3)
            with reads(one) as counts:
                assert len(claim(one, 10, ranges=[Range("zoo")])) == 2
        assert counts.of("pgqueue_job") <= 120, (mode, counts)


def test_the_gate_reads_a_few_entries_for_each_key(one: Connection) -> None:
    for mode in MODES:
        one.execute(f"SET plan_cache_mode = {mode}")
        with reads(one) as counts:
            assert len(claim(one, BATCH, ranges=[Range("keyed")])) == BATCH
        assert counts.of("pgqueue_job") <= 12 * BATCH, (mode, counts)


def test_asking_what_upkeep_is_needed_reads_two_rows(one: Connection) -> None:
    """Also with blocked jobs that wait for no other job."""
    for mode in MODES:
        one.execute(f"SET plan_cache_mode = {mode}")
        with reads(one) as counts:
            assert one.execute(IN_USE_SQL).fetchone() == (False, False, True)
        assert counts.of("pgqueue_job") <= 4, (mode, counts)


def test_a_release_reads_the_first_of_each_line(one: Connection) -> None:
    keys = [f"key/{number}" for number in range(1, BATCH + 1)]
    for mode in MODES:
        one.execute(f"SET plan_cache_mode = {mode}")
        with reads(one) as counts:
            assert release(one, "long", *keys) == 1
        assert counts.of("pgqueue_job") <= 8 * BATCH, (mode, counts)


def test_a_finish_reads_little_more_with_a_key(one: Connection) -> None:
    for mode in MODES:
        one.execute(f"SET plan_cache_mode = {mode}")
        jobs = [row.id for row in claim(one, BATCH, ranges=[Range("keyed")])]
        with reads(one) as counts:
            assert len(finish(one, jobs)) == BATCH
        assert counts.of("pgqueue_job") <= 12 * BATCH, (mode, counts)
        finish(one, jobs, "release")


def test_a_round_of_repair_reads_the_first_of_each_line(one: Connection) -> None:
    for mode in MODES:
        one.execute(f"SET plan_cache_mode = {mode}")
        with reads(one) as counts:
            assert repair(one) == 0
        assert counts.of("pgqueue_job") <= 8 * 1_000, (mode, counts)


def test_the_search_for_a_key_reads_its_jobs_alone(one: Connection) -> None:
    found = search(Job.objects.order_by("-pk"), "key:key/5", "", full=True).values("pk")[:101]
    statement, parameters = found.query.sql_with_params()
    one.execute("SET plan_cache_mode = auto")
    with reads(one) as counts:
        assert len(one.execute(statement, parameters).fetchall()) == 2
    assert counts.of("pgqueue_job") <= 12, counts
