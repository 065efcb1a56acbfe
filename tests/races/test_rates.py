"""Races of rates: claims at once, an application that takes starts, and a cancel of the alarm clock."""

from __future__ import annotations

import random
from datetime import timedelta
from time import monotonic
from typing import Any

import pytest

from tests.support.jobs import add, cancel, claim, claim_and_ask, finish, live, value
from tests.support.keys import add_keyed, add_many, running
from tests.support.rates import most_in_window, move_state, set_rate, starts_of, state_ahead, wait_of
from tests.support.sessions import Connect, Connection, start

pytestmark = pytest.mark.django_db(transaction=True)

HOUR = timedelta(hours=1)


def test_a_claim_does_not_decide_about_a_key_whose_rate_another_claim_charges(connect: Connect) -> None:
    one, other = connect(), connect(autocommit=True)
    set_rate(other, "k", 1, HOUR, burst=3)
    jobs = add_keyed(other, 4)
    assert [row.id for row in claim(one, 2)] == jobs[:2]
    assert claim_and_ask(other, lease=2) == ([], (0, 2))
    one.commit()
    assert [row.id for row in claim(other, lease=3)] == jobs[2:3]
    assert running(other) == jobs[:3]


def test_a_claim_of_a_queue_does_not_pass_the_rate_that_another_claim_charges(connect: Connect) -> None:
    one, other = connect(), connect(autocommit=True)
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


def test_an_alarm_clock_that_is_being_cancelled_is_not_relied_on(connect: Connect) -> None:
    one, other = connect(), connect(autocommit=True)
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


def test_the_state_of_a_rate_that_is_swept_while_it_is_charged_is_written_again(connect: Connect) -> None:
    one, other = connect(), connect(autocommit=True)
    set_rate(other, "k", 1, HOUR)
    add_keyed(other, 2)
    other.execute("INSERT INTO pgqueue_rate VALUES ('k', clock_timestamp() - interval '1 day')")
    one.execute("DELETE FROM pgqueue_rate")
    charged = start(other, claim).blocked()
    one.commit()
    assert len(charged.result()) == 1
    assert state_ahead(other, "k") > 3590


def charge(connection: Connection, *keys: str) -> None:
    """Charge starts, as a claim does."""
    connection.execute("SELECT _pgqueue_charge(%s::text[])", (list(keys),))


def test_a_charge_that_waits_for_the_row_is_a_whole_charge(connect: Connect) -> None:
    one, other = connect(), connect(autocommit=True)
    set_rate(other, "k", 10, timedelta(seconds=1), 20)
    other.execute("INSERT INTO pgqueue_rate VALUES ('k', clock_timestamp() + interval '1 minute')")
    query = "SELECT tat FROM pgqueue_rate WHERE key = 'k'"
    before = value(one, query + " FOR UPDATE")
    charged = start(other, charge, "k", "k").blocked()
    one.commit()
    charged.result()
    assert value(other, query) - before == timedelta(seconds=0.2)


@pytest.mark.parametrize("bulk", [False, True])
@pytest.mark.promise("rate")
def test_many_claims_at_once_never_pass_the_rate_in_any_window(connect: Connect, *, bulk: bool) -> None:
    """Measured from the stamps in the rows. They come after the decision, by one claim at most."""
    owner = connect(autocommit=True)
    rate, burst, seconds = 200, 20, 2.0
    set_rate(owner, "k", rate, timedelta(seconds=1), burst)
    if bulk:
        add_many(owner, *["k"] * 2000)
    else:
        add_keyed(owner, 2000)
    begin = monotonic()
    longest = [0.0]
    started: list[int] = []

    def goes_on() -> bool:  # on after the burst, whatever else this machine does
        past = monotonic() - begin
        return past < seconds or (len(started) < 2 * burst and past < 20 * seconds)

    def drain(connection: Connection, worker: int) -> None:
        choice = random.Random(worker)
        lease = worker * 1_000_000
        while goes_on():
            lease += 1
            began = monotonic()
            rows, _ = claim_and_ask(connection, choice.choice([1, 7, 50]), worker=worker, lease=lease)
            longest[0] = max(longest[0], monotonic() - began)
            started.extend(row.id for row in rows)
            if rows and choice.random() < 0.9:  # the others stay with a dead worker
                finish(connection, [row.id for row in rows], lease=lease)

    workers = [start(connect(autocommit=True), drain, worker) for worker in range(1, 5)]
    for worker in workers:
        worker.result()
    starts = starts_of(owner, "k")
    assert len(starts) >= 2 * burst
    for window in (0.01, 0.1, 0.5, 1.0, 2.0):
        allowed = burst + rate * (window + longest[0])
        assert most_in_window(starts, timedelta(seconds=window)) <= allowed, (window, longest)
