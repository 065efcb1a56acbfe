"""Workers in other languages: the functions that they call, one after the other."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest
from django.test.utils import override_settings

from django_pgqueue.admin.workers import Fleet
from django_pgqueue.maintenance.recovery import recover_dead
from django_pgqueue.models import Job, Worker
from django_pgqueue.postgres.session import connect as connect_session
from tests.support.jobs import (
    add,
    cancel,
    finish_one,
    heartbeat,
    live,
    register,
    sql_claim,
    statuses,
    unregister,
    value,
)
from tests.support.limits import add_keyed, set_limit
from tests.support.sessions import Connect, Connection
from tests.support.workers import fresh

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("settled_server")]

TASK = "tests.app.tasks.noop"


@pytest.fixture
def worker(one: Connection) -> int:
    return register(one)


@pytest.fixture
def short_lease() -> Iterator[None]:
    with override_settings(PGQUEUE={"HEARTBEAT": 0.1, "LEASE": 0.5}):
        yield


def grow_silent(one: Connection, worker: int) -> None:
    """Make the last heartbeat a second old."""
    one.execute(
        "UPDATE pgqueue_worker SET heartbeat_at = heartbeat_at - interval '1 s' WHERE id = %s", (worker,)
    )


def recover() -> int:
    with closing(connect_session("default")) as session:
        return recover_dead(session)


def test_a_job_is_claimed_and_reported(one: Connection, worker: int) -> None:
    (pk,) = add(one, args='["a"]', kwargs='{"b": 1}', metadata='{"m": 2}', timeout=60, max_attempts=3)
    (job,) = sql_claim(one, worker)
    assert job[:1] + job[2:7] == (pk, TASK, ["a"], {"b": 1}, {"m": 2}, "default")
    assert (job.attempts, job.max_attempts, job.attempts_left, job.timeout) == (1, 3, 2, 60)
    row = fresh(pk)
    assert (row.status, row.worker, row.lease, row.deadline) == ("running", worker, job.lease, job.deadline)
    finish_one(one, job, result='"fine"', started_ago=0.5, reason="why", error="{}", fingerprint="f")
    row = fresh(pk)
    assert (row.status, row.result, row.duration) == ("done", "fine", 0.5)
    assert (row.waiting_reason, row.error_fingerprint) == ("why", "f")


@pytest.mark.promise("sql-order")
def test_the_order_is_that_of_the_python_worker(one: Connection, worker: int) -> None:
    later, *low = add(one, 2)
    one.execute("SELECT pgqueue_edit(ARRAY[%s::bigint], run_after => now() + interval '1 hour')", (later,))
    low += add(one, 1)
    (high,) = add(one, priority=5, queue_name="mail")
    assert [job.id for job in sql_claim(one, worker, 2)] == [high, low[0]]
    assert [job.id for job in sql_claim(one, worker, 2)] == low[1:]
    assert sql_claim(one, worker) == []


def test_queues_of_the_same_priority_take_turns(one: Connection, worker: int) -> None:
    for queue in ("a", "b"):
        add(one, 40, queue_name=queue)
    assert {sql_claim(one, worker, 1)[0].queue_name for _ in range(40)} == {"a", "b"}


def test_which_queues_are_read(one: Connection) -> None:
    for queue in ("a", "b", "c"):
        add(one, queue_name=queue)
    worker = register(one, "a", "b")
    assert [job.queue_name for job in sql_claim(one, worker, queues=["b"])] == ["b"]
    assert [job.queue_name for job in sql_claim(one, worker)] == ["a"]
    assert [job.queue_name for job in sql_claim(one, register(one))] == ["c"]


@pytest.mark.promise("sql-attempts")
def test_an_attempt_that_fails_is_retried_and_no_attempt_more_than_allowed(
    one: Connection, worker: int
) -> None:
    (pk,) = add(one, max_attempts=2)
    for left in (1, 0):
        (job,) = sql_claim(one, worker)
        assert job.attempts_left == left
        finish_one(one, job, "retry", error='{"class": "E"}', delay=0)
    assert sql_claim(one, worker) == []
    row = fresh(pk)
    assert (row.status, row.attempts, len(row.errors)) == ("failed", 2, 2)
    assert row.waiting_reason == "no attempts are left"
    assert Job.objects.filter(pk=pk).retry() == 1
    (job,) = sql_claim(one, worker)
    assert job.attempts_left == 1
    finish_one(one, job, "retry", delay=3600)
    assert sql_claim(one, worker) == [], "it waits"


def test_a_job_without_attempts_does_not_stop_the_line_of_its_key(one: Connection, worker: int) -> None:
    first, second = add_keyed(one, 2, max_attempts=1)
    (job,) = sql_claim(one, worker)
    finish_one(one, job, "retry", delay=0)
    found: list[int] = []
    while jobs := sql_claim(one, worker):
        found += [job.id for job in jobs]
        for job in jobs:
            finish_one(one, job)
    assert found == [second]
    assert statuses(one) == {first: "failed", second: "done"}


def test_a_job_without_policy_gets_the_number_of_attempts_that_the_worker_gives(
    one: Connection, worker: int
) -> None:
    (pk,) = add(one, task_path="a.foreign")
    assert value(one, "SELECT attempts_left FROM pgqueue_claim(NULL, 1, %s, 3)", worker) == 2
    assert fresh(pk).max_attempts is None


@pytest.mark.promise("sql-expiry")
def test_a_job_that_has_expired_is_cancelled(one: Connection, worker: int) -> None:
    (pk,) = add(one)
    one.execute("UPDATE pgqueue_job_live SET expires_at = now() WHERE id = %s", (pk,))
    assert sql_claim(one, worker) == []
    row = fresh(pk)
    assert (row.status, row.attempts) == ("cancelled", 0)
    assert row.waiting_reason.startswith("expired at ")


@pytest.mark.promise("sql-pauses")
def test_paused_queues_and_tasks_are_respected(one: Connection, worker: int) -> None:
    add(one, 3, queue_name="mail")
    aside = add(one, 3, task_path="a.paused")
    (free,) = add(one)
    of_group = add(one)
    one.execute("UPDATE pgqueue_job_live SET group_key = 'acme' WHERE id = %s", of_group)
    one.execute("SELECT pgqueue_pause('queue', 'mail')")
    one.execute("SELECT pgqueue_pause('group', 'acme')")
    one.execute("SELECT pgqueue_pause('task', 'a.paused', reason => 'why', author => 'ann')")
    assert [job.id for job in sql_claim(one, worker, 1)] == [free]  # it looks on behind what it puts aside
    assert {live(one)[job] for job in [*aside, *of_group]} == {"blocked"}
    row = fresh(aside[0])
    assert (row.waiting_reason, row.attempts) == ("paused by ann: why", 0)
    one.execute("SELECT pgqueue_resume('task', 'a.paused')")
    one.execute("SELECT _pgqueue_unpause(100)")
    assert [job.id for job in sql_claim(one, worker)] == aside
    one.execute("SELECT pgqueue_resume('queue', 'mail')")
    one.execute("SELECT pgqueue_pause('all', '')")
    assert sql_claim(one, worker) == []


def test_it_looks_on_behind_a_long_line(one: Connection, worker: int) -> None:
    set_limit(one, "k", 1)
    first = add_keyed(one, 700)[0]
    (behind,) = add(one)
    assert [job.id for job in sql_claim(one, worker, 1)] == [first]
    assert [job.id for job in sql_claim(one, worker, 1)] == [behind]


def test_a_claim_with_the_report_starts_the_next_of_the_line_in_its_place(
    connect: Connect, worker: int
) -> None:
    one = connect()
    first, second = add_keyed(one, 2)
    (job,) = sql_claim(one, worker)
    plain = add(one, 2)
    one.commit()
    finish_one(one, job)
    assert job.id == first
    assert [job.id for job in sql_claim(one, worker, 1)] == [second]
    one.commit()
    assert [job.id for job in sql_claim(one, worker)] == plain


def test_the_answer_to_a_heartbeat(one: Connection, worker: int) -> None:
    first, second = add(one, 2)
    sql_claim(one, worker)
    assert heartbeat(one, worker) == (True, [], False)
    cancel(one, [second])
    one.execute("SELECT pgqueue_drain_worker(%s, false)", (worker,))
    assert heartbeat(one, worker) == (True, [second], True)
    add(one)
    assert sql_claim(one, worker) == []
    assert Worker.objects.get().state == "draining"
    assert heartbeat(one, worker + 1) == (False, [], False)
    assert live(one)[first] == "running"


def test_a_worker_that_holds_a_job_stays_until_its_lease_ends(one: Connection, worker: int) -> None:
    add(one)
    (job,) = sql_claim(one, worker)
    assert not unregister(one, worker)
    finish_one(one, job)
    assert unregister(one, worker)
    assert not Worker.objects.exists()


@pytest.mark.usefixtures("short_lease")
@pytest.mark.promise("sql-recovery")
def test_a_dead_worker_loses_its_jobs_and_its_reports_are_refused(one: Connection, worker: int) -> None:
    requeued, running_again = add(one, 2)
    jobs = sql_claim(one, worker)
    assert recover() == 0
    grow_silent(one, worker)
    assert recover() == 2
    assert heartbeat(one, worker)[0] is False
    with pytest.raises(psycopg.IntegrityError, match="is not registered") as refusal:
        sql_claim(one, worker)
    assert refusal.value.sqlstate == "23Q04"
    (again,) = sql_claim(one, register(one), 1)
    refusals = {}
    for job in jobs:
        with pytest.raises(psycopg.IntegrityError) as refused:
            finish_one(one, job)
        refusals[job.id] = refused.value.sqlstate
    lost = {again.id: "23Q02", (requeued + running_again - again.id): "23Q03"}
    assert refusals == lost
    assert fresh(again.id).lost_in_a_row == 1  # what it has claimed counts as started


def test_a_claim_is_a_heartbeat(one: Connection, worker: int) -> None:
    grow_silent(one, worker)
    sql_claim(one, worker)
    age = "SELECT clock_timestamp() - heartbeat_at < interval '0.9 s' FROM pgqueue_worker"
    assert value(one, age)


@pytest.mark.promise("lease-is-unique", "sql-refused")
def test_leases_are_random(one: Connection, worker: int) -> None:
    drawn = [row[0] for row in one.execute("SELECT _pgqueue_random() FROM generate_series(1, 2000)")]
    assert len(set(drawn)) == 2000
    assert all(0 <= number < 2**62 for number in drawn)
    for bit in range(62):
        assert 800 < sum(number >> bit & 1 for number in drawn) < 1200, bit
    add(one, 2)
    assert sql_claim(one, worker, 1)[0].lease != sql_claim(one, worker, 1)[0].lease


FINISH = "CALL pgqueue_finish(1, 1, 'retry', {})"
BAD_CALLS = [
    "SELECT pgqueue_register_worker('')", "SELECT pgqueue_register_worker('a', '{a b}')",
    "SELECT pgqueue_register_worker('a', slots => 0)",
    "SELECT pgqueue_register_worker('a', version => repeat('x', 51))",
    *(f"SELECT pgqueue_claim(NULL, {given})" for given in ("0, 1", "NULL, 1", "1001, 1", "1, 1, 0")),
    *(f"SELECT pgqueue_why(1, {at})" for at in ("heartbeat => 'NaN'", "lease => 1e300", "lease => NULL")),
    "SELECT pgqueue_set_limit('limit', 'a', NULL, NULL, 1, '178000000 years')",
    *(f"SELECT pgqueue_enqueue('a.b', options => '{given}')" for given in (
        "5", '{"max_json_bytes": 1.5}', '{"max_json_bytes": []}', '{"max_json_bytes": 9999999999}',
        '{"after_items": [1]}', '{"unique_key": ""}', '{"tenant": "a:b"}')),
    *(FINISH.format(given) for given in (
        "error => '[]'", "error => '{\"class\": {}}'", "delay => 'Infinity'", "delay => 'NaN'",
        "started_ago => -1", "duration => 1e300", "fingerprint => repeat('x', 41)",
        "reason => repeat('x', 501)", "keep_errors => 0", "keep_errors => NULL")),
    *(f"CALL pgqueue_finish(1, 1, {outcome})" for outcome in ("''", "'running'", "'DONE'", "NULL")),
    "SELECT pgqueue_drain_worker(1, NULL)",
]  # fmt: skip
LONG = "x" * 201
BAD_OPTIONS: list[Any] = [
    [], {"unique_keys": "k"}, {"unique_scope": "live"}, {"unique_window": 5}, {"unique_key": 5},
    {"unique_key": ""}, {"unique_key": LONG},
    *({"unique_key": "k", "unique_scope": scope} for scope in ("done", None)),
    *({"unique_key": "k", "unique_window": window} for window in (0, -1, 1e99, "1 hour", None)),
    {"unique_key": "k", "on_conflict": "skip"}, {"limit_key": LONG},
    *({"limit_key": key} for key in ("", "/7", "*", "queue:mail")),
    {"group_key": ""}, {"group_key": 5}, {"group_key": LONG}, {"groups": "x"},
    *({"tenant": name} for name in ("", "a:b", "a/b", "a b", "ä", "x" * 64, 5)),
    {"after": 5}, {"after": ["5"]}, {"after": [0]}, {"after": [1.5]}, {"after": list(range(1, 102))},
    {"if_failed": "run"}, {"after": [1], "if_failed": "stop"}, {"batch": "5"}, {"batch": 1.5},
    {"after": [1], "unique_key": "k", "on_conflict": "replace"},
    {"batch": 1, "unique_key": "k", "on_conflict": "earliest"},
]  # fmt: skip


def test_bad_input_is_refused(one: Connection, wording: Any) -> None:
    said = []
    for call in BAD_CALLS:
        with pytest.raises(psycopg.errors.InvalidParameterValue) as refusal:
            one.execute(call)
        said.append(str(refusal.value.diag.message_primary))
    problem = "SELECT _pgqueue_options_problem(%s::jsonb)"
    said += [value(one, problem, json.dumps(options)) for options in BAD_OPTIONS]
    assert "\n".join(said) == wording
    assert not Job.objects.exists()


def test_other_isolations_are_refused(connect: Connect, worker: int) -> None:
    one = connect()
    one.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    with pytest.raises(psycopg.errors.InvalidTransactionState, match="needs READ COMMITTED"):
        sql_claim(one, worker)


@pytest.mark.parametrize(("age", "vital"), [(1, "running"), (10, "running"), (16, "silent"), (31, "dead")])
def test_the_admin_counts_with_the_lease(one: Connection, worker: int, age: int, vital: str) -> None:
    one.execute("UPDATE pgqueue_worker SET heartbeat_at = now() - %s * interval '1 s'", (age,))
    fleet: Any = Fleet("default")
    assert [found.vital for found in fleet.workers] == [vital]
    assert str(fleet.workers[0]) == "go-1"
    assert fleet.standstill.startswith("Schedules stand still")
