"""Groups in the database: they stay, and claims take them in an order. How they get there: `tests.limits`."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.support.foreign import register, sql_claim
from tests.support.jobs import add, cancel, claim_groups, finish, value
from tests.support.sessions import Connect, Connection

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("settled_server")]


@pytest.fixture
def one(connect: Connect) -> Connection:
    return connect(autocommit=True)


def grouped(connection: Connection, *names: str, **options: Any) -> list[int]:
    """Enqueue one job for each name."""
    return [add(connection, options=json.dumps({"group_key": name}), **options)[0] for name in names]


def test_a_job_keeps_its_group_for_its_whole_life(one: Connection) -> None:
    done, cancelled = grouped(one, "a", "b")
    cancel(one, [cancelled])
    assert [row.id for row in claim_groups(one, {"a": 1})] == [done]
    assert finish(one, [done]) == [done]
    assert dict(one.execute("SELECT id, group_key FROM pgqueue_job").fetchall()) == {
        done: "a",
        cancelled: "b",
    }
    assert value(one, "SELECT pgqueue_retry(ARRAY[%s]::bigint[], true)", done) == [done]
    assert value(one, "SELECT group_key FROM pgqueue_job_live WHERE id = %s", done) == "a"


def test_a_claim_takes_of_each_group_its_quota_in_order(one: Connection) -> None:
    jobs = grouped(one, "a", "a", "a", "b", "c")
    plain = add(one, 3)
    rows = claim_groups(one, {"a": 2, "b": 2, None: 1})
    assert sorted(row.id for row in rows) == [jobs[0], jobs[1], jobs[3], plain[0]]
    assert {row.id: row.group_key for row in rows} == {
        jobs[0]: "a", jobs[1]: "a", jobs[3]: "b", plain[0]: None,
    }  # fmt: skip
    assert [row.id for row in claim_groups(one, {"z": 5, "c": 5, "a": 5}, 1, lease=2)] == [jobs[4]]


def test_a_limited_queue_has_room_for_groups_as_for_all_others(one: Connection) -> None:
    grouped(one, "a", "a", "b", "b", queue_name="mail")
    for lease, count in ((2, 3), (3, 0)):
        rows = claim_groups(one, {"a": 2, "b": 2}, lease=lease, queue="mail", limits={"mail": 3})
        assert len(rows) == count


def test_a_claim_by_sql_takes_one_of_each_group_in_turn(one: Connection) -> None:
    worker = register(one)
    jobs = grouped(one, *["big"] * 6, "small", "tiny", "tiny")
    claimed = [[job.id for job in sql_claim(one, worker, 2)] for _ in range(5)]
    assert sorted(claimed[0] + claimed[1]) == sorted([jobs[0], jobs[6], jobs[7], jobs[1]])
    assert sorted(claimed[2]) == sorted([jobs[8], jobs[2]])
    assert sorted(job for jobs_of_claim in claimed for job in jobs_of_claim) == jobs
    assert sql_claim(one, worker) == []


def test_a_claim_by_sql_takes_jobs_with_and_without_a_group(one: Connection) -> None:
    worker = register(one)
    jobs = sorted([*grouped(one, "a", "b"), *add(one, 2)])
    assert sorted(job.id for job in sql_claim(one, worker)) == jobs


def test_a_search_by_name_jumps_from_group_to_group(one: Connection) -> None:
    jobs = grouped(one, "b", "a", "b", "c")
    grouped(one, "d", priority=5)
    query = "SELECT group_key, id FROM _pgqueue_groups_after('default', 0, %s, %s)"
    assert one.execute(query, ("", 9)).fetchall() == [("a", jobs[1]), ("b", jobs[0]), ("c", jobs[3])]
    assert one.execute(query, ("a", 1)).fetchall() == [("b", jobs[0])]


def test_a_search_by_time_tells_jobs_with_a_group_from_others(one: Connection) -> None:
    first, second = grouped(one, "b", "a")
    (plain,) = add(one)
    query = "SELECT id, group_key, is_known FROM _pgqueue_first_due(NULL, '{}', %s, %s, %s, %s, %s, 500)"
    nothing: list[list[Any]] = [[], [], [], [], []]
    new = (plain, None, False)
    assert one.execute(query, nothing).fetchall() == [new, (first, "b", False)]
    known = (["default"], [True], [0], [datetime(2000, 1, 1, tzinfo=UTC)], [0])
    assert one.execute(query, known).fetchall() == [new, (first, "b", True), (second, "a", True)]
