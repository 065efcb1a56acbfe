"""Who may start under a limit key, in one session."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.support.jobs import (
    Range,
    add,
    cancel,
    claim,
    claim_and_ask,
    edit,
    finish,
    live,
    statuses,
    value,
)
from tests.support.keys import add_keyed, add_many, line, repair, running, set_limit
from tests.support.sessions import Connect, Connection

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def one(connect: Connect) -> Connection:
    return connect(autocommit=True)


def start_all(connection: Connection, **options: Any) -> list[int]:
    """Claim and finish one by one until nothing is left. Return the jobs in the order in which they
    started."""
    started: list[int] = []
    for lease in range(100, 200):
        rows, refusals = claim_and_ask(connection, lease=lease, **options)
        if not rows and not any(refusals):
            return started
        started += [row.id for row in rows]
        finish(connection, [row.id for row in rows], lease=lease)
    raise AssertionError("it did not end")


def test_the_jobs_of_a_key_start_in_the_order_of_priority_and_line(one: Connection) -> None:
    low, high = add_keyed(one, 3), add_keyed(one, 2, priority=5)
    for ranges in ([Range(), Range(priority=5)], [Range(priority=5), Range()]):
        assert [row.id for row in claim(one, ranges=ranges, lease=5)] in ([high[0]], [])
    assert running(one) == high[:1]
    assert line(one) == [high[1], *low]
    finish(one, high[:1], lease=5)
    assert start_all(one, ranges=[Range(priority=5), Range()]) == [high[1], *low]


def test_a_key_without_a_limit_allows_one_and_others_do_not_matter(one: Connection) -> None:
    add_many(one, "k", "k", "k/1", "k/1", "k/2", None, None)
    assert len(claim(one)) == 5
    assert len(running(one)) == len(running(one, "k/1")) == len(running(one, "k/2")) == 1


def test_a_retry_that_waits_for_its_time_holds_no_slot_and_joins_at_the_end(one: Connection) -> None:
    first, second, third = add_many(one, "k", "k", "k")
    claim(one)
    assert finish(one, [first], "retry", delay=0.001) == [first]
    assert [row.id for row in claim(one, lease=2)] == [second]
    claim(one, lease=3)
    assert running(one) == [second]
    assert line(one) == [third, first]
    finish(one, [second], lease=2)
    assert start_all(one) == [third, first]


def test_a_job_that_is_given_back_keeps_its_place(one: Connection) -> None:
    first, second = add_many(one, "k", "k")
    claim(one)
    assert finish(one, [first], "release") == [first]
    assert start_all(one) == [first, second]


def test_recovery_gives_the_slots_of_a_dead_worker_back(one: Connection) -> None:
    first, second = add_many(one, "k", "k")
    claim(one, worker=77)
    one.execute("SELECT _pgqueue_recover('{77}', NULL, NULL, false, 'lost', 3, 100, 20)")
    assert live(one) == {first: "pending", second: "blocked"}
    assert start_all(one) == [first, second]


def test_a_key_has_a_line_in_each_queue(one: Connection) -> None:
    add_keyed(one, 2, queue_name="mail")
    add_keyed(one, 2)
    ranges = [Range(), Range("mail")]
    for lease in range(1, 4):
        claim(one, ranges=ranges, lease=lease)
    assert len(running(one)) == 1
    finish(one, running(one))
    assert sorted(live(one).values()) in (["blocked", "pending", "pending"], ["pending"] * 3)
    assert len(start_all(one, ranges=ranges)) == 3


def test_a_job_that_finds_no_room_is_skipped(one: Connection) -> None:
    set_limit(one, "k", 1, "cancel_new")
    first, second = add_keyed(one, 2)
    rows, refusals = claim_and_ask(one)
    assert ([row.id for row in rows], refusals) == ([first], (1, 0))
    assert statuses(one) == {first: "running", second: "cancelled"}
    why = "SELECT waiting_reason, cancel_requested_at FROM pgqueue_job WHERE id = %s"
    assert one.execute(why, (second,)).fetchone() == (
        "skipped: as many jobs of its limit key were running as its limit allows", None,
    )  # fmt: skip
    finish(one, [first])
    assert start_all(one) == []
    assert len(add_keyed(one)) == len(start_all(one))


def test_a_newer_job_replaces_older_ones(one: Connection) -> None:
    set_limit(one, "k", 1, "cancel_old")
    (first,) = add_keyed(one)
    claim(one)
    (second,) = add_keyed(one)
    assert claim_and_ask(one, lease=2) == ([], (2, 0))
    assert live(one) == {first: "running", second: "blocked"}
    assert value(one, "SELECT cancel_requested_at IS NOT NULL FROM pgqueue_job WHERE id = %s", first)
    (third,) = add_keyed(one)
    assert claim_and_ask(one, lease=3) == ([], (2, 0))
    assert statuses(one) == {first: "running", second: "cancelled", third: "blocked"}
    assert value(one, "SELECT waiting_reason FROM pgqueue_job WHERE id = %s", second) == (
        "replaced by a newer job of its limit key"
    )
    finish(one, [first], "cancelled")
    assert start_all(one) == [third]


def test_newer_jobs_in_one_claim_replace_older_ones(one: Connection) -> None:
    set_limit(one, "k", 2, "cancel_old")
    jobs = add_keyed(one, 5)
    rows, refusals = claim_and_ask(one)
    assert ([row.id for row in rows], refusals) == (jobs[3:], (3, 0))
    assert statuses(one) == {**dict.fromkeys(jobs[:3], "cancelled"), **dict.fromkeys(jobs[3:], "running")}


def test_a_higher_limit_releases_the_lines_of_all_its_keys(one: Connection) -> None:
    keys = [f"k/{number}" for number in range(3)] + ["k", "ka", "k-b"]
    add_many(one, *[key for key in keys for _ in range(3)])
    assert len(claim(one)) == 6
    set_limit(one, "k", 2)
    counts = "SELECT limit_key FROM pgqueue_job_live WHERE status = 'pending' ORDER BY limit_key"
    assert [row[0] for row in one.execute(counts).fetchall()] == ["k", "k/0", "k/1", "k/2"]
    assert len(claim(one, lease=2)) == 4
    assert claim(one, lease=3) == []


def test_why_a_job_does_not_start_is_one_query(one: Connection) -> None:
    first, second, third = add_many(one, "k/1", "k/1", "k/1")
    (plain,) = add(one)
    claim(one, 1)
    set_limit(one, "queue:default", 5)
    set_limit(one, "*", 1)
    assert one.execute("SELECT * FROM pgqueue_blocked_by(%s)", (third,)).fetchall() == [
        ("k", "k/1", True, 1, 1, 1, [first], None),
        ("queue:default", None, False, 5, 1, None, [first], None),
        ("*", None, True, 1, 1, None, [first], None),
    ]
    assert value(one, "SELECT place FROM pgqueue_blocked_by(%s) LIMIT 1", second) == 0
    assert [row[0] for row in one.execute("SELECT * FROM pgqueue_blocked_by(%s)", (plain,)).fetchall()] == [
        "queue:default", "*",
    ]  # fmt: skip
    cancel(one, [plain])
    assert one.execute("SELECT * FROM pgqueue_blocked_by(%s)", (plain,)).fetchall() == []


def test_a_round_of_repair_goes_on_where_the_last_one_ended(one: Connection) -> None:
    add_many(one, *[f"k/{number}" for number in range(5) for _ in range(2)])
    one.execute(
        "DELETE FROM pgqueue_job_live WHERE status = 'pending'"
    )  # by hand: nobody releases the others
    look = "SELECT lines, reached, released FROM _pgqueue_repair_lines(%s, 2)"
    reached: str | None = ""
    found = []
    while reached is not None:
        lines, reached, released = one.execute(look, (reached,)).fetchone() or (0, None, 0)
        found.append((lines, released))
    assert found == [(2, 2), (2, 2), (1, 1)]
    assert repair(one) == 0


def test_a_job_that_is_moved_to_a_later_time_by_hand_does_not_hold_up_its_line(one: Connection) -> None:
    first, second, third, fourth = add_keyed(one, 4)
    later = "UPDATE pgqueue_job SET run_after = clock_timestamp() + interval '1 hour' WHERE id = %s"
    one.execute(later, (first,))
    assert [row.id for row in claim(one)] == [second]
    one.execute(later, (third,))
    assert finish(one, [second]) == [second]
    assert repair(one) == 1
    assert [row.id for row in claim(one, lease=2)] == [fourth]
    assert set(live(one)) == {first, third, fourth}


# --- Edits and pauses of jobs with a key


def put_off(connection: Connection, job: int, seconds: float) -> int:
    """Edit the time of a job."""
    return len(value(connection, "SELECT pgqueue_edit(%s, delay => %s * interval '1 s')", [job], seconds))


def test_a_job_in_line_that_is_edited_to_a_later_time_leaves_the_line(one: Connection) -> None:
    first, second, third = add_many(one, "k", "k", "k")
    claim(one)
    assert line(one) == [second, third]
    assert put_off(one, second, 3600) == 1
    assert line(one) == [third]
    assert statuses(one)[second] == "pending"
    finish(one, [first])
    assert start_all(one) == [third]


def test_those_behind_a_job_that_is_edited_away_do_not_wait_for_it(one: Connection) -> None:
    """Jobs of one statement are put in line behind the first, which nobody has claimed yet."""
    first, second, third = add_many(one, "k", "k", "k")
    assert put_off(one, first, 3600) == 1
    assert start_all(one) == [second, third]
    assert put_off(one, first, 0) == 1
    assert start_all(one) == [first]


@pytest.mark.parametrize("free", [False, True])
def test_a_job_that_is_edited_to_another_queue_waits_for_its_key_there(one: Connection, free: bool) -> None:
    first, second = add_many(one, "k", "k")
    claim(one)
    if free:
        finish(one, [first])
    assert edit(one, [second], queue_name="other") == 1
    if not free:
        assert claim(one, lease=2, ranges=[Range("other")]) == []
        assert statuses(one)[second] == "blocked"
        finish(one, [first])
    assert start_all(one, ranges=[Range("other")]) == [second]


def test_a_job_that_is_put_aside_for_a_pause_gives_its_slot_back(one: Connection) -> None:
    first, second = add_many(one, "k", "k")
    one.execute("SELECT pgqueue_pause('task', 'tests.app.tasks.noop')")
    claim(one)
    assert finish(one, [first], "paused", reason="paused") == [first]
    assert live(one) == {first: "blocked", second: "pending"}
    assert line(one) == [second]
    assert [row.id for row in claim(one, lease=2)] == [second]
    finish(one, [second], lease=2)
    one.execute("SELECT pgqueue_resume('task', 'tests.app.tasks.noop')")
    assert value(one, "SELECT _pgqueue_unpause(10)") == 1
    assert start_all(one) == [first]


def test_a_job_whose_pause_has_just_ended_keeps_its_place(one: Connection) -> None:
    first, second, third = add_many(one, "k", "k", "k")
    claim(one)
    finish(one, [first])
    claim(one, lease=2)
    assert finish(one, [second], "paused", lease=2) == [second]  # there is no pause
    assert start_all(one) == [second, third]


def test_retry_and_run_now_leave_a_paused_job_with_a_key_out_of_the_line(one: Connection) -> None:
    (first,) = add_many(one, "k")
    one.execute("SELECT pgqueue_pause('task', 'tests.app.tasks.noop')")
    claim(one)
    finish(one, [first], "paused", reason="paused")
    value(one, "SELECT pgqueue_retry(%s)", [first])
    value(one, "SELECT pgqueue_run_now(%s)", [first])
    assert live(one) == {first: "blocked"}
    assert line(one) == []


def test_a_limit_that_is_taken_away_lets_all_jobs_of_its_keys_run(one: Connection) -> None:
    """A key without a row allows one job; a row that was set to no number allows any."""
    first, *others = add_keyed(one, 3)
    assert [row[0] for row in claim(one)] == [first]
    assert claim(one, lease=2) == []
    one.execute("SELECT pgqueue_set_limit('limit', 'k', no_concurrency => true)")
    # The first one of the line is released, and the gate makes room for those behind it.
    assert [row[0] for lease in (3, 4) for row in claim(one, lease=lease)] == others
    assert value(one, "SELECT pgqueue_reset_limit('limit', 'k')")
    assert not value(one, "SELECT pgqueue_reset_limit('limit', 'k')")
    for both in ("concurrency => 1, no_concurrency => true", "rate => 1, per => '1 s', no_rate => true"):
        with pytest.raises(psycopg.DataError, match="give a number, or take it away, but not both"):
            one.execute(f"SELECT pgqueue_set_limit('limit', 'k', {both})")
