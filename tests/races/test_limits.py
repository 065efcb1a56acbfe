"""Limits and rates: each test forces the order of two sessions in which one is passed, or a job stranded."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from django_pgqueue.jobs.claim import Claimed, Refusals, claim_sql
from tests.support.jobs import Range, add, cancel, claim, claim_and_ask, claim_and_tell, finish, live, value
from tests.support.limits import (
    add_keyed,
    add_many,
    move_state,
    repair,
    running,
    set_limit,
    set_rate,
    state_ahead,
    wait_of,
)
from tests.support.sessions import Connect, Connection, behind, start

pytestmark = pytest.mark.django_db(transaction=True)


def ids(rows: list[Claimed]) -> list[int]:
    return [row.id for row in rows]


def slow_claim() -> str:
    """A claim that stops at the lock 7 after it has picked its jobs, before it asks the gate."""
    statement = claim_sql().replace(
        "CROSS JOIN LATERAL _pgqueue_gate(",
        "CROSS JOIN LATERAL (SELECT pg_advisory_lock_shared(7) WHERE asked.ids IS NOT NULL OFFSET 0) AS stop"
        " CROSS JOIN LATERAL _pgqueue_gate(",
    )
    assert "lock_shared(7)" in statement
    return statement


@pytest.mark.promise("limit")
def test_a_claim_counts_what_started_after_its_own_snapshot(connect: Connect) -> None:
    gate, one, other = connect(autocommit=True), connect(autocommit=True), connect(autocommit=True)
    first = add_keyed(one)
    second = add_keyed(one, queue_name="mail")
    gate.execute("SELECT pg_advisory_lock(7)")
    late = start(
        other, claim_and_ask, ranges=[Range("mail")], worker=2, lease=2, statement=slow_claim()
    ).blocked()
    assert ids(claim(one)) == first
    gate.execute("SELECT pg_advisory_unlock(7)")
    assert late.result() == ([], (1, 0))
    assert running(one) == first
    assert live(one)[second[0]] == "blocked"


def test_a_claim_whose_snapshots_are_not_young_is_refused(one: Connection, other: Connection) -> None:
    add_keyed(other, 2)
    one.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    with pytest.raises(psycopg.errors.InvalidTransactionState, match="READ COMMITTED"):
        claim(one)
    one.rollback()
    one.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    assert claim(one, ranges=[Range("mail")]) == []  # jobs without a key do not ask the gate
    with pytest.raises(psycopg.errors.InvalidTransactionState, match="READ COMMITTED"):
        claim_and_ask(one, ranges=[Range("mail")], limits={"mail": 1})


@pytest.mark.parametrize("end", [finish, cancel])
def test_a_job_is_not_blocked_behind_one_that_is_ending(
    one: Connection, other: Connection, end: Callable[[Connection, list[int]], object]
) -> None:
    first, second = add_keyed(other, 2)
    if end is finish:
        assert ids(claim(other, 1)) == [first]
    assert end(one, [first])  # it saw no line, and will not look again
    assert claim_and_ask(other, worker=2, lease=2) == ([], (0, 1))
    one.commit()
    assert ids(claim(other, worker=2, lease=2)) == [second]


def test_a_finish_waits_for_the_claim_that_blocks_a_job_behind_it_and_releases_it(
    one: Connection, other: Connection
) -> None:
    first, second = add_keyed(other, 2)
    assert ids(claim(other, 1)) == [first]
    assert claim_and_ask(one, worker=2, lease=2) == ([], (1, 0))
    assert behind(one, other, finish, [first]) == [first]
    assert live(other) == {second: "pending"}
    assert ids(claim(other, worker=2, lease=2)) == [second]


def test_jobs_are_blocked_behind_the_first_one_that_another_claim_holds(connect: Connect) -> None:
    gate, one, other = connect(autocommit=True), connect(autocommit=True), connect(autocommit=True)
    first, second = add_keyed(other, 2)
    gate.execute("SELECT pg_advisory_lock(7)")
    # It has picked the first job. The other claim takes the lock of the key before it.
    late = start(one, claim, 1, statement=slow_claim()).blocked()
    assert claim_and_ask(other, worker=2, lease=2) == ([], (1, 0))
    assert live(other) == {first: "pending", second: "blocked"}
    gate.execute("SELECT pg_advisory_unlock(7)")
    assert ids(late.result()) == [first]


def test_a_claim_does_not_wait_for_an_older_job_that_it_replaces(one: Connection, other: Connection) -> None:
    set_limit(other, "k", 1, "cancel_old")
    first, second = add_keyed(other, 2)
    assert cancel(one, [first]) == 1
    assert ids(claim(other)) == []  # the next one finds both
    one.rollback()
    assert ids(claim(other)) == [second]
    assert live(other) == {second: "running"}


def test_a_release_passes_over_a_job_that_is_being_cancelled(one: Connection, other: Connection) -> None:
    first, *rest = add_many(other, "k", "k", "k", "k")
    assert ids(claim(other, 1)) == [first]
    assert cancel(one, rest[:1]) == 1  # it locks the second one in line as well, to release it
    assert finish(other, [first]) == [first]
    one.rollback()
    assert live(other) == {rest[0]: "blocked", rest[1]: "blocked", rest[2]: "pending"}
    started = []
    for lease in (2, 3, 4, 5, 6):
        for row in claim(other, lease=lease):
            started.append(row.id)
            assert running(other) == [row.id]
            assert finish(other, [row.id], lease=lease) == [row.id]
    assert sorted(started) == rest


@pytest.mark.promise("limit-repair", "cancel-transaction")
def test_a_line_whose_cancel_is_rolled_back_is_repaired(one: Connection, other: Connection) -> None:
    first, *rest = add_many(other, "k", "k", "k")
    assert ids(claim(other, 1)) == [first]
    assert cancel(one, rest) == 2
    assert finish(other, [first]) == [first]
    one.rollback()
    assert live(other) == dict.fromkeys(rest, "blocked")
    assert claim(other) == []
    assert repair(other) == 1
    assert ids(claim(other, worker=2, lease=2)) == rest[:1]
    assert repair(other) == 0


def test_a_cancel_of_the_first_one_releases_the_next(one: Connection, other: Connection) -> None:
    first, second, third = add_many(other, "k", "k", "k")
    assert cancel(one, [first]) == 1
    assert claim(other) == []
    one.commit()
    assert live(other) == {second: "pending", third: "blocked"}
    assert ids(claim(other)) == [second]


def test_those_that_the_gate_lets_follow_are_claimed_before_older_jobs(other: Connection) -> None:
    jobs = add_many(other, *["k"] * 4)
    assert ids(claim(other)) == jobs[:1]
    assert live(other) == {jobs[0]: "running", **dict.fromkeys(jobs[1:], "blocked")}
    newcomer, *others = *add_keyed(other), *add(other, 5)
    set_limit(other, "k", 3)
    answer = claim_and_tell(other, 1, lease=2)
    assert (answer.rows, answer.refusals) == ([], Refusals(2, 0, (jobs[1], jobs[2])))
    assert live(other)[newcomer] == "blocked"
    answer = claim_and_tell(other, 3, lease=3, first=answer.refusals.following)
    assert sorted(ids(answer.rows)) == [*jobs[1:3], others[0]]
    assert answer.early == set(jobs[1:3])
    assert running(other) == jobs[:3]


def test_a_claim_takes_the_locks_of_256_keys_at_most(connect: Connect) -> None:
    one = connect()
    jobs = add_many(one, *[f"k/{number}" for number in range(300)])
    one.commit()
    rows, refusals = claim_and_ask(one, 500)
    assert ids(rows) == jobs[:256]
    assert refusals == (0, 44)
    locks = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()"
    assert value(one, locks) == 256
    one.commit()
    assert ids(claim(one, 500, lease=2)) == jobs[256:]


@pytest.mark.promise("limit-queue")
def test_claims_of_a_limited_queue_at_once_never_pass_its_limit(one: Connection, other: Connection) -> None:
    jobs = add(other, 10, queue_name="mail")
    free = add(other, 2)
    ranges = [Range("mail"), Range("default")]
    assert ids(claim_and_ask(one, ranges=ranges, limit=3, limits={"mail": 7})[0]) == jobs[:3]
    assert ids(claim_and_ask(other, ranges=ranges, limits={"mail": 7}, lease=2)[0]) == free
    one.commit()
    assert ids(claim_and_ask(other, ranges=ranges, limits={"mail": 7}, lease=3)[0]) == jobs[3:7]
    assert claim_and_ask(other, ranges=ranges, limits={"mail": 7}, lease=4)[0] == []
    assert ids(claim_and_ask(other, ranges=ranges, limits={"mail": 9, "*": 10}, lease=5)[0]) == jobs[7:8]


@pytest.mark.promise("limit-next")
def test_the_next_of_a_key_is_claimed_with_the_report_and_keeps_its_place(connect: Connect) -> None:
    one = connect()
    first, second, third = add_many(one, "k", "k", "k")
    younger = add(one, 3)
    one.commit()
    assert ids(claim(one, 1)) == [first]
    one.commit()
    assert finish(one, [first]) == [first]
    assert ids(claim(one, 1, lease=2)) == [second]
    one.commit()
    # A report without a claim leaves it for the next one, behind those that came meanwhile.
    assert finish(one, [second], lease=2) == [second]
    one.commit()
    assert ids(claim(one, 3, lease=3)) == younger
    assert ids(claim(one, 3, lease=4)) == [third]


# -- rates


HOUR = timedelta(hours=1)


@pytest.mark.promise("rate")
def test_a_claim_does_not_decide_about_a_key_whose_rate_another_claim_charges(
    one: Connection, other: Connection
) -> None:
    set_rate(other, "k", 1, HOUR, burst=3)
    jobs = add_keyed(other, 4)
    assert [row.id for row in claim(one, 2)] == jobs[:2]
    assert claim_and_ask(other, lease=2) == ([], (0, 2))
    one.commit()
    assert [row.id for row in claim(other, lease=3)] == jobs[2:3]
    assert running(other) == jobs[:3]


def test_a_claim_of_a_queue_does_not_pass_the_rate_that_another_claim_charges(
    one: Connection, other: Connection
) -> None:
    set_rate(other, "queue:default", 1, HOUR, burst=3)
    jobs = add(other, 6)
    limits: Any = {"default": None}
    assert len(claim_and_ask(one, 2, limits=limits)[0]) == 2
    assert claim_and_ask(other, lease=2, limits=limits)[0] == []
    one.commit()
    assert [row.id for row in claim_and_ask(other, lease=3, limits=limits)[0]] == jobs[2:3]


def take(connection: Connection) -> float:
    return float(value(connection, "SELECT pgqueue_take_rate('k', '', 1)"))


def test_a_transaction_that_takes_a_start_makes_others_wait_and_gives_it_back(connect: Connect) -> None:
    one, two, other = connect(), connect(autocommit=True), connect(autocommit=True)
    set_rate(other, "k", 1, HOUR)
    assert take(one) == 0
    add_keyed(other)
    assert claim_and_ask(other) == ([], (0, 1))  # a claim waits for nobody
    waiting = start(two, take).blocked()
    one.rollback()
    assert waiting.result() == 0
    assert take(one) > 3590
    assert claim(other) == []


def test_an_alarm_clock_that_is_being_cancelled_is_not_relied_on(one: Connection, other: Connection) -> None:
    set_rate(other, "k", 1, HOUR)
    first, alarm = add_keyed(other, 2)
    assert [row.id for row in claim(other)] == [first]
    assert wait_of(other, alarm) > 0
    assert cancel(one, [alarm]) == 1  # it saw no line behind it
    (late,) = add_keyed(other)
    assert claim_and_ask(other, lease=2) == ([], (1, 0))
    one.commit()
    assert live(other) == {first: "running", late: "pending"}
    assert wait_of(other, late) > 3590
    move_state(other, "k", 3600)
    assert [row.id for row in claim(other, lease=3)] == [late]


def test_a_line_that_waits_for_its_rate_has_one_alarm_clock(other: Connection) -> None:
    set_rate(other, "k", 1, HOUR)
    first, alarm, second = add_keyed(other, 3)
    assert ids(claim(other)) == [first]
    (late,) = add_keyed(other)
    assert claim_and_ask(other, lease=2) == ([], (1, 0))
    assert live(other) == {first: "running", alarm: "pending", second: "blocked", late: "blocked"}


def test_the_state_of_a_rate_that_is_swept_while_it_is_charged_is_written_again(
    one: Connection, other: Connection
) -> None:
    set_rate(other, "k", 1, HOUR)
    add_keyed(other, 2)
    other.execute("INSERT INTO pgqueue_rate VALUES ('k', clock_timestamp() - interval '1 day')")
    one.execute("DELETE FROM pgqueue_rate")
    assert len(behind(one, other, claim)) == 1
    assert state_ahead(other, "k") > 3590


def test_a_charge_that_waits_for_the_row_is_a_whole_charge(one: Connection, other: Connection) -> None:
    set_rate(other, "k", 10, timedelta(seconds=1), 20)
    other.execute("INSERT INTO pgqueue_rate VALUES ('k', clock_timestamp() + interval '1 minute')")
    query = "SELECT tat FROM pgqueue_rate WHERE key = 'k'"
    before = value(one, query + " FOR UPDATE")
    behind(one, other, Connection.execute, "SELECT _pgqueue_charge('{k, k}')")  # as a claim does
    assert value(other, query) - before == timedelta(seconds=0.2)
