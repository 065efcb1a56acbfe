"""Claims: what they take, in which order, of which groups, and what they leave."""

from __future__ import annotations

import json
from contextlib import closing
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from django_pgqueue.jobs import claim as claims
from django_pgqueue.jobs.claim import CHARACTERS, Claimed, claim_sql
from django_pgqueue.models import Job
from django_pgqueue.postgres.session import connect as connect_session
from django_pgqueue.worker.options import WorkerOptions
from django_pgqueue.worker.producer.claimer import Claimer
from tests.support.jobs import (
    Range,
    add,
    claim,
    claim_and_tell,
    claim_groups,
    live,
    register,
    sql_claim,
    value,
)
from tests.support.plans import MODES, claim_parameters, nodes, plan
from tests.support.sessions import Connect, Connection

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("settled_server")]

SETTINGS = "pg_show_all_settings"


def ids(rows: list[Claimed]) -> list[int]:
    return [row.id for row in rows]


def test_a_claim_writes_who_and_when_and_takes_what_the_worker_needs(one: Connection) -> None:
    (job,) = add(one, task_path="a.b", args="[1]", kwargs='{"k": 2}', metadata='{"m": 3}', queue_name="mail",
                 priority=4, max_attempts=5, timeout=30)  # fmt: skip
    one.execute("UPDATE pgqueue_job_live SET expires_at = clock_timestamp()")
    (row,) = claim(one, worker=77, lease=88, ranges=[Range("mail", 4)])
    found = Job.objects.get(pk=job)
    assert (found.status, found.attempts, found.worker, found.lease) == ("running", 1, 77, 88)
    assert found.started_at is not None
    assert found.last_attempted_at is not None
    assert found.deadline is not None
    assert abs(found.deadline - found.last_attempted_at - timedelta(seconds=30)) < timedelta(seconds=1)
    assert (row.id, row.lease, row.attempts, row.timeout, row.waited >= 0) == (job, 88, 1, 30, True)
    payload: tuple[object, ...] = (row.args, row.kwargs, row.metadata)  # a worker receives these as text
    assert payload == ([1], {"k": 2}, {"m": 3})
    assert (row.queue_name, row.priority, row.max_attempts) == ("mail", 4, 5)
    assert (row.on_lost, row.crash_count, row.forgiven_attempts, row.expired) == (None, 0, 0, True)


def test_what_is_not_claimable_is_left(one: Connection) -> None:
    """It is not due, runs, waits for something, or is in a range that is not read."""
    add(one, run_after=timezone.now() + timedelta(minutes=1))
    running, blocked = add(one, 2)
    for job, status in ((running, "running"), (blocked, "blocked")):
        one.execute("UPDATE pgqueue_job_live SET status = %s WHERE id = %s", (status, job))
    add(one, priority=6)
    add(one, queue_name="mail")
    (due,) = add(one)
    assert ids(claim(one)) == [due]
    assert (live(one)[running], live(one)[blocked]) == ("running", "blocked")


def test_the_first_start_stays_and_a_second_attempt_counts(one: Connection) -> None:
    (job,) = add(one)
    claim(one)
    first = Job.objects.get(pk=job)
    one.execute("UPDATE pgqueue_job_live SET status = 'retry'")
    (row,) = claim(one)
    second = Job.objects.get(pk=job)
    assert row.attempts == second.attempts == 2
    assert second.started_at == first.started_at
    assert second.last_attempted_at > first.last_attempted_at  # type: ignore[operator]


def test_the_order_is_time_then_id(one: Connection) -> None:
    jobs = add(one, 4)
    one.execute("UPDATE pgqueue_job_live SET run_after = '2020-01-01 UTC' WHERE id = ANY(%s)", (jobs[2:],))
    assert [ids(claim(one, 1)) for _ in jobs] == [[jobs[2]], [jobs[3]], [jobs[0]], [jobs[1]]]


def test_ranges_are_drained_in_the_order_given(one: Connection) -> None:
    low, high, mail = add(one, 2), add(one, 2, priority=9), add(one, 2, queue_name="mail", priority=9)
    order = [Range("mail", 9), Range("default", 9), Range("default", 0)]
    assert ids(claim(one, 3, ranges=order)) == sorted([*mail, high[0]])
    assert ids(claim(one, 3, ranges=order)) == sorted([high[1], *low])


def test_what_lies_at_or_below_the_mark_is_left(one: Connection) -> None:
    jobs = add(one, 3)
    one.execute("UPDATE pgqueue_job_live SET run_after = '2020-01-01 UTC'")
    moment = Job.objects.get(pk=jobs[0]).run_after
    assert ids(claim(one, ranges=[Range(mark=moment, mark_id=jobs[1])])) == [jobs[2]]
    assert ids(claim(one, ranges=[Range(mark_id=jobs[2])])) == jobs[:2]


def test_no_ranges_and_no_room_give_nothing(one: Connection) -> None:
    add(one)
    assert claim(one, 0) == []
    parameters: dict[str, Any] = {"queues": [], "priorities": [], "marks": [], "mark_ids": [], "first": []}
    rows = one.execute(claim_sql(), {**parameters, "limit": 5, "worker": 1, "lease": 1}).fetchall()
    assert rows == []


@pytest.mark.parametrize("limits", [None, {"default": 5}], ids=["", "limited"])
@pytest.mark.promise("on-lost-claim-on-disk")
def test_the_claim_of_a_job_that_must_not_run_twice_waits_for_the_disk(
    connect: Connect, limits: dict[str, int] | None
) -> None:
    """As far as the server is configured for that. The scenario "lost claims" lets the server crash."""
    one = connect()
    add(one, on_lost="rerun")
    add(one, on_lost="fail", queue_name="mail")
    for queue, expected in [("default", "off"), ("mail", "on"), ("empty", "off")]:
        one.execute("SET LOCAL synchronous_commit = off")
        rows, *_ = claim_and_tell(one, ranges=[Range(queue)], limits=limits)
        assert len(rows) == (queue != "empty")
        assert value(one, "SHOW synchronous_commit") == expected
        one.commit()
    assert value(one, "SHOW synchronous_commit") == "on", "nothing is left in the session"


@pytest.mark.parametrize(("on_lost", "times"), [("rerun", 0), ("fail", 1)])
def test_only_such_a_claim_reads_the_settings_of_the_server(
    one: Connection, on_lost: str, times: int
) -> None:
    add(one, 3, on_lost=on_lost)
    for mode in MODES:
        one.execute(f"SET plan_cache_mode = {mode}")
        found = nodes(plan(one, claim_sql(), claim_parameters(Range(), limit=5), analyze=True))
        loops = [each["Actual Loops"] for each in found if each.get("Function Name") == SETTINGS]
        assert loops == [times], mode


@pytest.mark.parametrize("args", [json.dumps(["x" * 4_000]), json.dumps([1] * 400)])
def test_a_claim_stops_at_its_size(one: Connection, args: str) -> None:
    add(one, 4, args=args)  # of which the first ones are compressed
    small = add(one, 3, args="[1]")
    bound = 2 * len(args) - 100
    statement = claim_sql().replace(str(CHARACTERS), str(bound))
    sizes = []
    while rows := claim(one, statement=statement):
        sizes.append(len(rows))
    assert sum(sizes) == 4 + len(small)
    assert sizes[0] < 4


def test_each_claim_of_a_worker_has_a_lease_of_its_own() -> None:
    """Otherwise a late report would end a job that the same worker has claimed again."""
    claimer = Claimer(WorkerOptions(), worker=1)
    (_, first), (_, second) = claimer.statement(1), claimer.statement(1)
    assert first["lease"] != second["lease"]


def test_a_claim_of_large_jobs_leaves_none_behind(one: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "CHARACTERS", 10_000)
    claim_sql.cache_clear()
    jobs = add(one, 7, args=json.dumps(["x" * 4_000])) + add(one, 2, options='{"limit_key": "k"}')
    claimer = Claimer(WorkerOptions(), worker=1)
    taken: list[list[int]] = []
    with closing(connect_session("default")) as session:
        claimer.search(session)
        while rows := claimer.claim(session, 100):
            taken.append(ids(rows))
    claim_sql.cache_clear()
    assert [len(some) for some in taken] == [3, 3, 2]
    assert [job for some in taken for job in some] == jobs[:-1]  # the last one waits for its key


def test_a_claim_by_sql_stops_at_its_size(one: Connection) -> None:
    large = add(one, 40, args=json.dumps(["x" * 1_000_000]))
    (small,) = add(one)
    worker = register(one)
    assert [len(sql_claim(one, worker, 100)) for _ in range(3)] == [32, 9, 0]
    assert small > large[-1]


# -- groups: how they get there is in tests.limits


def grouped(connection: Connection, *names: str, **options: Any) -> list[int]:
    """Enqueue one job for each name."""
    return [add(connection, options=json.dumps({"group_key": name}), **options)[0] for name in names]


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


def test_a_search_by_time_finds_the_next_jobs_of_a_known_range_with_groups(one: Connection) -> None:
    first, second = grouped(one, "b", "a")
    known = "'{default}', '{t}', '{0}', '{2000-01-01Z}', '{0}'"
    query = f"SELECT id, group_key FROM _pgqueue_first_due('{{default}}', '{{}}', {known}, 2)"
    assert one.execute(query).fetchall() == [(first, "b"), (second, "a")]
