"""Races between workers that add to the statistics, maintenance that rolls them up, and a scrape."""

from __future__ import annotations

from threading import Thread

import pytest

from django_pgqueue.monitoring.spans import totals
from tests.support.sessions import Connect, Connection, start
from tests.support.statistics import count, counted, roll_up

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_minute_that_a_worker_adds_to_is_left_for_later(connect: Connect) -> None:
    worker, maintenance = connect(), connect(autocommit=True)
    count(maintenance, [5, 6], 1)
    count(worker, [5], 2)
    assert start(maintenance, roll_up).result() == 1, "it waits for no row that the worker has locked"
    worker.commit()
    assert roll_up(maintenance) == 1
    assert set(counted(maintenance).values()) == {(4, 4)}


def test_a_worker_that_meets_a_minute_in_upkeep_makes_another_row(connect: Connect) -> None:
    worker, maintenance = connect(autocommit=True), connect()
    count(worker, [5], 1)
    assert roll_up(maintenance) == 1
    adding = start(worker, count, [5], 2).blocked()
    maintenance.commit()
    adding.result()
    assert set(counted(worker).values()) == {(3, 3)}
    assert roll_up(worker) == 1
    assert set(counted(worker).values()) == {(3, 3)}


def test_upkeep_that_fails_leaves_everything_as_it_was(connect: Connect) -> None:
    worker, maintenance = connect(autocommit=True), connect()
    count(worker, [5], 1)
    assert roll_up(maintenance) == 1
    adding = start(worker, count, [5], 2).blocked()
    maintenance.rollback()
    adding.result()
    assert set(counted(worker).values()) == {(3, 3)}


def test_one_supervisor_rolls_up_at_a_time_and_none_waits(connect: Connect) -> None:
    one, other = connect(), connect(autocommit=True)
    count(other, [5, 6], 1)
    assert roll_up(one, 1) == 1
    assert start(other, roll_up).result() == 0
    one.commit()
    assert roll_up(other) == 1


def test_counts_of_a_scrape_never_go_back(connect: Connect) -> None:
    """Two workers add to the same minutes while maintenance rolls them up and a scrape reads."""
    workers, maintenance = [connect(autocommit=True) for _ in range(2)], connect(autocommit=True)

    def add(connection: Connection) -> None:
        for _ in range(100):
            count(connection, [3, 4])

    threads = [Thread(target=add, args=(connection,)) for connection in workers]
    for thread in threads:
        thread.start()
    seen = [0]
    while any(thread.is_alive() for thread in threads):
        roll_up(maintenance)
        seen.append(sum(total.done for total in totals("default")))
    assert seen == sorted(seen)
    roll_up(maintenance)
    assert set(counted(maintenance).values()) == {(400, 400)}
