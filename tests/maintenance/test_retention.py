"""Months of history with the real rotation.

The tests check at which multiple of the retention R a job is dropped. It is always at least 1.0, and at most
1.2 in a steady state. After R was shortened, all jobs that are older than the new R are gone within one new
R. After R was lengthened, the ring does not advance until the shelves of the short R are old enough: a job
may reach 1.8 once, and 1.2 holds again two R later.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.history import DAY, World, fresh_ring
from tests.support.sessions import Connect

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def world(connect: Connect) -> Iterator[World]:
    connection = connect(autocommit=True)
    with fresh_ring(connection):
        yield World(connection)


def youngest_dropped(world: World, since: float = 0) -> float:
    """The true age of the youngest job that was dropped after `since`."""
    return min(age for when, age in world.dropped if when > since)


def oldest_while(world: World, hours: float, step: float) -> float:
    """The age of the oldest job that was kept at any moment of that time."""
    oldest = 0.0
    for _ in range(round(hours / step)):
        world.run(step, step)
        oldest = max(oldest, world.oldest)
    return oldest


def test_seven_days_then_one_then_thirty(world: World) -> None:
    week, day, month, step = 7 * DAY, DAY, 30 * DAY, 4.0
    assert oldest_while(world, 3 * week, step) <= 1.2 * week + step
    assert youngest_dropped(world) >= week

    shortened = world.now
    world.retain(day)
    world.run(day, 1)
    assert oldest_while(world, 3 * day, 1) <= 1.2 * day + 1
    assert youngest_dropped(world, shortened) >= day

    lengthened = world.now
    world.retain(month)
    assert oldest_while(world, 2 * month, 12) <= 2 * month
    assert oldest_while(world, month, 12) <= 1.2 * month + 12
    assert youngest_dropped(world, lengthened) >= month


def test_a_stop_of_a_month(world: World) -> None:
    week, step = 7 * DAY, 4.0
    world.run(2 * week, step)
    world.run(30 * DAY, 10 * DAY, works=False)
    resumed = world.now
    world.run(1.2 * week, step)
    assert youngest_dropped(world) >= week
    assert oldest_while(world, week, step) <= 1.2 * week + step
    assert any(when > resumed and age > 30 * DAY for when, age in world.dropped)


@pytest.mark.parametrize("jump", [30.0, 10 * DAY])
@pytest.mark.promise("retention-and-clocks")
def test_a_clock_that_is_ahead_for_an_hour_costs_at_most_one_shelf(world: World, jump: float) -> None:
    week, step = 7 * DAY, 4.0
    world.run(2 * week, step)
    world.set_clock(jump)
    world.run(step, step)
    world.set_clock(-jump)
    world.run(3 * week, step)
    early = [age for _, age in world.dropped if age < week]
    assert len(early) <= week / 6 / step + 1
    assert min(early, default=week) >= week - week / 6 - step


def test_a_clock_that_is_put_right_costs_no_job_more_than_a_sixth_of_its_time(world: World) -> None:
    week, step = 7 * DAY, 4.0
    world.run(2 * week, step)
    world.set_clock(10 * DAY)
    world.run(3 * week, step)
    assert youngest_dropped(world) >= week - week / 6 - step


def test_a_clock_that_is_set_back_drops_nothing_early(world: World) -> None:
    week, step = 7 * DAY, 4.0
    world.run(2 * week, step)
    world.set_clock(-10 * DAY)
    world.run(3 * week, step)
    assert youngest_dropped(world) >= week
    assert oldest_while(world, week, step) <= 1.2 * week + step
