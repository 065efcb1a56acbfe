"""Who may start under a rate, in one session. Time is moved by moving the state of the rate."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import psycopg
import pytest

from tests.support.jobs import Range, add, cancel, claim, claim_and_ask, edit, finish, live, statuses, value
from tests.support.keys import add_keyed, add_many, line, repair, running, set_limit
from tests.support.rates import move_state, set_rate, state_ahead, wait_of
from tests.support.sessions import Connect, Connection

pytestmark = pytest.mark.django_db(transaction=True)

MINUTE = timedelta(minutes=1)


@pytest.fixture
def one(connect: Connect) -> Connection:
    return connect(autocommit=True)


def ids(rows: Any) -> list[int]:
    return [row.id for row in rows]


def test_a_burst_starts_and_the_next_one_is_the_alarm_clock_of_the_line(one: Connection) -> None:
    set_rate(one, "k", 6, MINUTE, burst=3)
    jobs = add_keyed(one, 6)
    rows, refusals = claim_and_ask(one)
    assert (ids(rows), refusals) == (jobs[:3], (3, 0))
    assert [statuses(one)[job] for job in jobs[3:]] == ["pending", "blocked", "blocked"]
    assert 9 < wait_of(one, jobs[3]) <= 10
    assert claim_and_ask(one, lease=2) == ([], (0, 0))
    move_state(one, "k", 10)
    assert ids(claim(one, lease=3)) == jobs[3:4]
    assert [statuses(one)[job] for job in jobs[4:]] == ["pending", "blocked"]
    assert 9 < wait_of(one, jobs[4]) <= 10


@pytest.mark.parametrize("scan", ["on", "off"])
def test_a_line_has_one_alarm_clock_whatever_the_plan(one: Connection, scan: str) -> None:
    """A nested loop once read the first of the line again for each job, and found another one each time."""
    set_rate(one, "k", 6, MINUTE, burst=3)
    jobs = add_keyed(one, 6)
    for setting in ("enable_hashjoin", "enable_mergejoin"):
        one.execute(f"SET {setting} TO off")
    one.execute(f"SET enable_indexscan TO {scan}")
    claim(one)
    assert [statuses(one)[job] for job in jobs[3:]] == ["pending", "blocked", "blocked"]


def test_those_who_run_long_do_not_hold_up_the_rate(one: Connection) -> None:
    set_rate(one, "k", 60, MINUTE)
    jobs = add_keyed(one, 4)
    for number in range(4):
        assert ids(claim(one, lease=10 + number)) == jobs[number : number + 1]
        move_state(one, "k", 1)
    assert running(one) == jobs


@pytest.mark.parametrize("end", ["retry", "release", "recovery"])
def test_each_attempt_is_a_start(one: Connection, end: str) -> None:
    """A job that comes back waits for the rate like any other, however its attempt has ended."""
    set_rate(one, "k", 6, MINUTE)
    jobs = add_keyed(one, 2)
    assert ids(claim(one, worker=77)) == jobs[:1]
    if end == "recovery":
        one.execute("SELECT _pgqueue_recover('{77}', NULL, NULL, false, 'lost', 3, 100, 20)")
    else:
        assert finish(one, jobs[:1], end) == jobs[:1]
    assert ids(claim(one, lease=2)) == []
    move_state(one, "k", 10)
    assert len(claim(one, lease=3)) == 1
    move_state(one, "k", 5)
    assert ids(claim(one, lease=4)) == []


def test_a_quiet_time_allows_no_more_than_the_burst(one: Connection) -> None:
    set_rate(one, "k", 60, MINUTE, burst=2)
    jobs = add_keyed(one, 5)
    assert ids(claim(one)) == jobs[:2]
    move_state(one, "k", 3600)
    claim(one, lease=2)
    claim(one, lease=3)
    assert running(one) == jobs[:4]


def test_many_jobs_of_one_statement_start_at_the_rate(one: Connection) -> None:
    set_rate(one, "k", 60, MINUTE, burst=2)
    jobs = add_many(one, *["k"] * 5)
    claim(one)
    claim(one, lease=2)
    assert running(one) == jobs[:2]
    assert [live(one)[job] for job in jobs[2:]] == ["pending", "blocked", "blocked"]
    assert finish(one, jobs[:1]) == jobs[:1]
    assert [live(one)[job] for job in jobs[2:]] == ["pending", "blocked", "blocked"]


def test_slots_and_a_rate_hold_together(one: Connection) -> None:
    set_rate(one, "k", 60, MINUTE, burst=10, running=2)
    jobs = add_keyed(one, 4)
    assert ids(claim(one)) == jobs[:2]
    assert live(one)[jobs[2]] == live(one)[jobs[3]] == "blocked"  # a finish releases them, not the time
    finish(one, jobs[:1])
    assert ids(claim(one, lease=2)) == jobs[2:3]
    set_rate(one, "k", 1, MINUTE, running=2)
    finish(one, jobs[1:2])
    assert claim(one, lease=3) == []
    assert live(one)[jobs[3]] == "pending"
    assert 0 < wait_of(one, jobs[3]) <= 60


def test_a_job_with_a_higher_priority_is_the_next_one(one: Connection) -> None:
    set_rate(one, "k", 6, MINUTE)
    first, second = add_keyed(one, 2)
    ranges = [Range(priority=5), Range()]
    assert ids(claim(one, ranges=ranges)) == [first]
    (high,) = add_keyed(one, 1, priority=5)
    assert claim(one, ranges=ranges, lease=2) == []
    assert line(one) == [high, second]
    move_state(one, "k", 10)
    for lease in (3, 4):
        claim(one, ranges=ranges, lease=lease)
    assert running(one) == [first, high]
    assert wait_of(one, second) > 9
    move_state(one, "k", 10)
    assert ids(claim(one, ranges=ranges, lease=5)) == [second]


@pytest.mark.parametrize("change", ["cancel", "later", "queue", "priority"])
def test_the_line_gets_another_alarm_clock_if_its_own_goes_away(one: Connection, change: str) -> None:
    set_rate(one, "k", 6, MINUTE)
    first, alarm, third = add_keyed(one, 3)
    ranges = [Range(priority=-5), Range(), Range("mail")]
    assert ids(claim(one, ranges=ranges)) == [first]
    if change == "cancel":
        assert cancel(one, [alarm]) == 1
    elif change == "later":
        assert edit(one, [alarm], run_after="2090-01-01Z") == 1
    elif change == "queue":
        assert edit(one, [alarm], queue_name="mail") == 1
    else:
        assert edit(one, [alarm], priority=-5) == 1
    assert claim(one, ranges=ranges, lease=2) == []
    assert live(one)[third] == "pending"
    assert 9 < wait_of(one, third) <= 10
    move_state(one, "k", 10)
    claim(one, ranges=ranges, lease=3)
    claim(one, ranges=ranges, lease=4)
    assert len(running(one)) == 2


def test_a_limit_that_changes_lets_the_next_one_start_at_once(one: Connection) -> None:
    set_rate(one, "k", 1, timedelta(hours=1))
    first, second, third = add_keyed(one, 3)
    assert ids(claim(one)) == [first]
    assert wait_of(one, second) > 3500
    set_rate(one, "k", 3600, timedelta(hours=1))
    assert wait_of(one, second) <= 0
    assert claim(one, lease=2) == []  # the state was an hour ahead; now it is one second
    assert wait_of(one, second) <= 1.001
    assert state_ahead(one, "k") <= 1.001
    assert value(one, "SELECT pgqueue_reset_limit('limit', 'k')")
    assert ids(claim(one, lease=3)) == []  # a key without a limit allows one at once
    assert finish(one, [first]) == [first]
    assert ids(claim(one, lease=4)) == [second]
    assert third in line(one)


def test_a_lower_rate_holds_at_once(one: Connection) -> None:
    set_rate(one, "k", 60, MINUTE, burst=5)
    add_keyed(one, 9)
    assert len(claim(one)) == 5
    set_rate(one, "k", 1, timedelta(hours=1))
    assert claim(one, lease=2) == []
    (alarm,) = [job for job, status in live(one).items() if status == "pending"]
    assert wait_of(one, alarm) <= 3600
    assert state_ahead(one, "k") <= 3600


def test_a_clock_that_steps_back_blocks_nobody_for_longer_than_a_burst(one: Connection) -> None:
    set_rate(one, "k", 60, MINUTE, burst=2)
    jobs = add_keyed(one, 4)
    claim(one)
    move_state(one, "k", -86_400)
    assert wait_of(one, jobs[2]) > 86_000
    assert repair(one) == 1
    assert claim(one, lease=2) == []
    assert state_ahead(one, "k") <= 2.001
    assert wait_of(one, jobs[2]) <= 1.001
    assert repair(one) == 0


def test_repair_leaves_a_line_alone_that_waits_for_its_rate(one: Connection) -> None:
    set_rate(one, "k", 1, MINUTE)
    jobs = add_keyed(one, 4)
    claim(one)
    assert repair(one) == 0
    one.execute("DELETE FROM pgqueue_job WHERE id = %s", (jobs[1],))  # by hand: the alarm clock
    assert repair(one) == 1
    assert claim(one, lease=2) == []
    assert live(one)[jobs[2]] == "pending"


def test_keys_have_rates_of_their_own(one: Connection) -> None:
    set_rate(one, "k", 1, MINUTE, burst=2)
    add_many(one, *["k/1"] * 3, *["k/2"] * 3, "other")
    claim(one)
    claim(one, lease=2)
    assert [len(running(one, key)) for key in ("k/1", "k/2", "other")] == [2, 2, 1]
    assert value(one, "SELECT array_agg(key ORDER BY key) FROM pgqueue_rate") == ["k/1", "k/2"]


def test_a_queue_and_the_installation_have_rates(one: Connection) -> None:
    set_rate(one, "queue:mail", 60, MINUTE, burst=3)
    set_rate(one, "*", 60, MINUTE, burst=5)
    mails, others = add(one, 6, queue_name="mail"), add(one, 6)
    ranges = [Range("mail"), Range()]
    limits: Any = {"mail": None, "*": None}
    assert ids(claim_and_ask(one, ranges=ranges, limits=limits)[0]) == [*mails[:3], *others[:2]]
    assert claim_and_ask(one, ranges=ranges, limits=limits, lease=2)[0] == []
    move_state(one, "*", 2)
    assert ids(claim_and_ask(one, ranges=ranges, limits=limits, lease=3)[0]) == others[2:4]
    move_state(one, "*", 60)
    move_state(one, "queue:mail", 1)
    assert ids(claim_and_ask(one, 2, ranges=ranges, limits=limits, lease=4)[0]) == [mails[3], others[4]]


def test_what_the_gate_refuses_is_not_charged_to_the_queue(one: Connection) -> None:
    set_rate(one, "queue:default", 60, MINUTE, burst=10)
    add_keyed(one, 5)
    limits: Any = {"default": None}
    assert len(claim_and_ask(one, limits=limits)[0]) == 1
    assert 0 < state_ahead(one, "queue:default") <= 1


def test_why_a_job_does_not_start_names_the_next_start(one: Connection) -> None:
    set_rate(one, "k", 6, MINUTE)
    first, second, _ = add_keyed(one, 3)
    claim(one)
    query = (
        "SELECT name, is_full, allowed, place, extract(epoch FROM next_start - clock_timestamp())::float8"
        " FROM pgqueue_blocked_by(%s)"
    )
    (row,) = one.execute(query, (second,)).fetchall()
    assert row[:4] == ("k", True, None, 0)
    assert 9 < row[4] <= 10.001
    move_state(one, "k", 20)
    assert one.execute(query, (second,)).fetchall() == [("k", False, None, 0, None)]
    assert first in running(one)


def take(connection: Connection, key: str = "", count: int = 1, name: str = "k") -> float:
    return float(value(connection, "SELECT pgqueue_take_rate(%s, %s, %s)", name, key, count))


def test_an_application_takes_starts_of_the_same_rate(one: Connection) -> None:
    set_rate(one, "k", 6, MINUTE, burst=3)
    assert take(one, "7", 2) == 0
    assert 9 < take(one, "7", 2) <= 10
    jobs = add_keyed(one, 2, key="k/7")
    assert ids(claim(one)) == jobs[:1]
    assert 9 < take(one, "7") <= 10.001
    assert take(one, "8", 3) == 0
    move_state(one, "k/7", -86_400)
    assert take(one, "7") <= 10.001  # the clock has stepped back
    look = "SELECT pgqueue_take_rate('k', '9', 1, true)"
    assert [value(one, look) for _ in range(5)] == [0.0] * 5


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ("'none'", "there is no rate 'none': set it with"),
        ("'slots'", "there is no rate 'slots'"),
        ("'k', '', 0", "must be at least 1, not 0"),
        ("'k', '', NULL", "must be at least 1, not NULL"),
        ("'k', '', 4", "never allowed at once, because its burst is 3"),
        ("'k', NULL", "must not be NULL"),
        ("'k', repeat('x', 200)", "has 202 characters"),
        ("'*'", "must begin with the name of a limit"),
        ("'a/b'", "must not contain a slash"),
    ],
)
def test_sql_refuses_to_take_what_makes_no_sense(one: Connection, call: str, words: str) -> None:
    set_rate(one, "k", 6, MINUTE, burst=3)
    set_limit(one, "slots", 3)
    with pytest.raises(psycopg.DataError, match=words):
        one.execute(f"SELECT pgqueue_take_rate({call})")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ("'limit', 'a', rate => 0, per => '1 s'", "at least 1 start, not 0. To let none start, pause"),
        ("'limit', 'a', rate => 1", "has no period"),
        ("'limit', 'a', per => '1 s'", "no number of starts"),
        ("'limit', 'a', burst => 1", "no number of starts"),
        ("'limit', 'a', rate => 1, per => '0'", "more than 0 seconds"),
        ("'limit', 'a', rate => 1, per => '-1 s'", "more than 0 seconds"),
        ("'limit', 'a', rate => 1, per => '101 years'", "at most 100 years"),
        ("'limit', 'a', rate => 1, per => '1 s', burst => 0", "burst of the rate 'a' must be at least 1"),
        ("'limit', 'a', rate => 1, per => '1 year', burst => 200", "more than 100 years"),
        ("'limit', 'skips', rate => 1, per => '1 s'", "jobs always wait for the rate"),
        ("'limit', 'a', rate => 1, per => '1 s', on_full => 'cancel_new'", "jobs always wait for the rate"),
    ],
)
def test_sql_refuses_a_rate_that_makes_no_sense(one: Connection, call: str, words: str) -> None:
    set_limit(one, "skips", 3, "cancel_new")
    with pytest.raises(psycopg.DataError, match=words):
        one.execute(f"SELECT pgqueue_set_limit({call})")
    assert value(one, "SELECT count(*) FROM pgqueue_limit WHERE rate IS NOT NULL") == 0
