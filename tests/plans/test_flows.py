"""Statements about composition, beside many other batches, edges, and jobs that wait."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from pytest_django import DjangoDbBlocker

from django_pgqueue.maintenance.rounds import IN_USE_SQL
from tests.support.jobs import add, cancel, finish, value
from tests.support.plans import MODES, fill, nodes, plan, reads
from tests.support.sessions import Connection, open_raw

from .statements import LIVE

pytestmark = pytest.mark.django_db

MANY = 10_000
BATCH = 1_000_000
OURS = ("pgqueue_edge", "pgqueue_batch", "pgqueue_tally")
TABLES = f"{LIVE}, pgqueue_edge, pgqueue_batch, pgqueue_tally"


@pytest.fixture(scope="module")
def filled(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[Connection]:
    """Running jobs that are plain, members of a batch, and parents; and children of two parents each."""
    with django_db_blocker.unblock():
        connection = open_raw()
    with connection:
        fill(connection, LIVE, 3 * MANY, id="n", status="'running'", worker="1", lease="1",
             marks=f"CASE WHEN n <= {MANY} THEN 0 WHEN n <= 2 * {MANY} THEN 4 ELSE 2 END",
             batch=f"CASE WHEN n > {MANY} AND n <= 2 * {MANY} THEN {BATCH} END")  # fmt: skip
        fill(connection, LIVE, MANY, id=f"n + 3 * {MANY}", status="'blocked'",
             waiting_reason="'waits for jobs'",
             parents=f"ARRAY[2 * {MANY} + n::bigint, 2 * {MANY} + n % {MANY} + 1]")  # fmt: skip
        connection.execute(
            f"INSERT INTO pgqueue_edge (parent_id, child_id) SELECT unnest(parents), id FROM {LIVE}"
            " WHERE status = 'blocked'"
        )
        # A parent and a child that the statistics know well.
        connection.execute(
            "INSERT INTO pgqueue_edge (parent_id, child_id)"
            " SELECT %(one)s, %(one)s + n FROM generate_series(1, %(n)s) AS n"
            " UNION ALL SELECT %(two)s + n, %(two)s FROM generate_series(1, %(n)s) AS n",
            {"one": 3 * BATCH, "two": 4 * BATCH, "n": 3 * MANY},
        )
        connection.execute(
            "INSERT INTO pgqueue_batch (id, is_open) SELECT %s + n, false FROM generate_series(0, 5000) AS n",
            (BATCH,),
        )
        connection.execute("INSERT INTO pgqueue_tally SELECT id, 1, 5 FROM pgqueue_batch")
        connection.execute("SELECT setval('pgqueue_job_id_seq', %s)", (2 * BATCH,))
        connection.execute("ANALYZE")
        yield connection
        connection.execute("TRUNCATE pgqueue_job, pgqueue_edge, pgqueue_batch, pgqueue_tally")


@pytest.fixture(params=MODES)
def one(filled: Connection, request: pytest.FixtureRequest) -> Connection:
    """Remove the dead rows that other tests have left."""
    filled.execute(f"VACUUM (INDEX_CLEANUP on) {TABLES}")
    filled.execute(f"SET plan_cache_mode = {request.param}")
    return filled


def test_plain_jobs_read_nothing_of_this(one: Connection) -> None:
    with reads(one) as counts:
        assert len(finish(one, list(range(1, 51)))) == 50
        assert cancel(one, add(one, 10)) == 10
    assert counts.of(*OURS) == 0, counts


def test_asking_what_upkeep_is_needed_reads_three_rows(one: Connection) -> None:
    """Also with jobs that have no line."""
    with reads(one) as counts:
        assert one.execute(IN_USE_SQL).fetchone() == (True, True, False)
    assert counts.of("pgqueue") <= 6, counts


def test_members_that_end_look_at_one_that_lives(one: Connection) -> None:
    members = list(range(MANY + 1, MANY + 51))
    with reads(one) as counts:
        assert len(finish(one, members)) == 50
    assert counts.of(LIVE, "pgqueue_job_batch") <= 4 * 50 + 10, counts
    assert counts.of(*OURS) <= 6, counts


def test_parents_that_end_read_their_edges_and_their_children(one: Connection) -> None:
    parents = list(range(2 * MANY + 1, 2 * MANY + 51))
    with reads(one) as counts:
        assert len(finish(one, parents)) == 50
        assert value(one, f"SELECT count(*) FROM {LIVE} WHERE id > %s AND status = 'pending'", 3 * MANY) == 49
    assert counts.of("pgqueue_edge") <= 16 * 50, counts
    with reads(one) as counts:
        assert cancel(one, list(range(3 * MANY + 1, 3 * MANY + 51))) == 50
    assert counts.of("pgqueue_edge") == 0, counts


def test_an_enqueue_reads_its_parents(one: Connection) -> None:
    options = json.dumps({"after": [2 * MANY + 1, BATCH + 1], "batch": BATCH + 2})
    with reads(one) as counts:
        add(one, 1, options=options)
        one.execute("SET CONSTRAINTS pgqueue_attach IMMEDIATE")
    assert counts.of(LIVE, *OURS) <= 60, counts


def test_the_children_of_a_parent_are_found_by_the_index(one: Connection) -> None:
    query = "SELECT id FROM pgqueue_job WHERE parents @> ARRAY[%(parent)s::bigint]"
    found = plan(one, query, {"parent": 2 * MANY + 1})
    assert not [
        node for node in nodes(found) if node["Node Type"] == "Seq Scan" and node["Relation Name"] == LIVE
    ]


def test_a_round_of_upkeep_reads_one_page(one: Connection) -> None:
    with reads(one) as counts:
        row = one.execute("SELECT looked, reached FROM _pgqueue_repair_edges(0, 100)").fetchone()
        assert row == (100, 3 * MANY + 100)
    assert counts.of(LIVE, *OURS) <= 1500, counts
    with reads(one) as counts:
        row = one.execute("SELECT looked, ended FROM _pgqueue_repair_batches(%s, 100)", (BATCH,)).fetchone()
        assert row == (100, 100)
    assert counts.of(LIVE, *OURS) <= 1500, counts
