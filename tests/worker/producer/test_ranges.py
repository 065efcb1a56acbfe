"""Where a worker looks for jobs: the marks of ranges, and in which order a claim reads them."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from django_pgqueue.jobs.claim import Claimed
from django_pgqueue.worker.options import WorkerOptions
from django_pgqueue.worker.producer.claimer import Claimer
from django_pgqueue.worker.producer.inbox import Orders
from django_pgqueue.worker.producer.ranges import FORGET_AFTER, MOST_QUIET, FirstDue, Key, Places, Turns
from tests.support.factories import claimed

CLOCK = datetime(2030, 1, 1, 12, tzinfo=UTC)  # of the database


def ago(seconds: float) -> datetime:
    return CLOCK - timedelta(seconds=seconds)


def first(queue_name: str = "a", priority: int = 0, due: float = 10, pk: int = 5) -> FirstDue:
    """The first job of a range, due so many seconds before the clock."""
    return FirstDue(queue_name, priority, str(ago(due)), pk, -due)


def row(pk: int, due: float, queue_name: str = "a", clock: datetime = CLOCK) -> Claimed:
    """A job that was claimed at the clock."""
    return claimed(
        pk, queue_name=queue_name, run_after=str(ago(due)), last_attempted_at=str(clock), waited=due
    )


def places() -> Places:
    return Places(Orders(), {}, {}, None)


def advance(of: Places, rows: list[Claimed], now: float) -> None:
    of.claimed(rows, {}, now, whole=False, refused=False)


def marks(of: Places) -> dict[tuple[str, int], tuple[datetime, int]]:
    queues, kinds, priorities, times, ids = of.known(rescan=False)
    assert not any(kinds)
    return dict(zip(zip(queues, priorities, strict=True), zip(times, ids, strict=True), strict=True))


FIRST = [first()]


@pytest.mark.parametrize(
    ("steps", "mark"),
    [
        pytest.param([], (10, 4), id="just below the first job"),
        *(
            pytest.param([[first(due=due)]], (0.5, 0), id=f"never later than half a second ago: {due}")
            for due in (0.4, 0, -1, -86400)
        ),
        pytest.param(
            [FIRST, [row(5, 10), row(6, 9), row(7, 3)]], (3, 7), id="a claim moves it to its last job"
        ),
        pytest.param([FIRST, [row(5, 10), row(6, 10)]], (10, 6), id="jobs of one time differ by their id"),
        *(
            pytest.param(
                [FIRST, [row(7, due)]], (0.5, 0), id=f"a claim moves it up to half a second ago: {due}"
            )
            for due in (0.4, 0)
        ),
        pytest.param(
            [FIRST, [row(7, 3)], [row(6, 9)], [row(8, 0, clock=ago(60))]],
            (3, 7),
            id="a claim never lowers it",
        ),
        pytest.param([FIRST, [first(due=5)]], (10, 4), id="a first job above does not raise it"),
        pytest.param([FIRST, [first(due=60, pk=9)]], (60, 8), id="a first job below lowers it"),
    ],
)
def test_the_mark_of_a_range(steps: list[list[Any]], mark: tuple[float, int]) -> None:
    known = places()
    assert known.keys() == []
    known.learn([first("b")], 0)
    for step in steps or [FIRST]:
        if isinstance(step[0], FirstDue):
            known.learn(step, 0)
        else:
            advance(known, step, 1)
    assert marks(known) == {("a", 0): (ago(mark[0]), mark[1]), ("b", 0): (ago(10), 4)}


def test_a_range_without_jobs_is_forgotten_after_a_minute() -> None:
    known = places()
    known.learn([first("a"), first("b"), first("c")], 0)
    advance(known, [row(5, 3, "b")], 30)
    known.learn([first("c")], 50)
    known.forget(FORGET_AFTER)
    assert len(known.keys()) == 3
    known.forget(FORGET_AFTER + 1)
    assert known.keys() == [("b", 0), ("c", 0)]


def test_few_ranges_without_jobs_are_kept() -> None:
    known = places()
    firsts = [first(f"q{number}") for number in range(MOST_QUIET + 20)]
    for number, each in enumerate(firsts):
        known.learn([each], number / 100)
    known.forget(10)
    assert len(known.keys()) == len(firsts), "those with jobs are kept"
    asked = {"queues": [each.queue_name for each in firsts], "priorities": [0] * len(firsts)}
    known.claimed([], asked, 10, whole=True, refused=False)
    known.forget(20)
    assert known.keys() == [(each.queue_name, 0) for each in firsts[-MOST_QUIET:]]
    known.forget(FORGET_AFTER + 10)
    assert known.keys() == []


def test_rescans_are_rationed_by_their_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    now, cost = 100.0, 0.2
    rescans: list[float] = []

    class Server:
        def rows(self, query: str, parameters: Any) -> list[Any]:
            nonlocal now
            if not parameters[2]:  # no marks
                rescans.append(now)
            now += cost
            return []

    monkeypatch.setattr("django_pgqueue.worker.producer.claimer.monotonic", lambda: now)
    server: Any = Server()
    claimer = Claimer(WorkerOptions(), worker=1)
    claimer._places.learn(FIRST, 100.0)
    claimer.search(server)
    cost = 0.0001
    for now in (110.1, 110.3, 110.34, 110.36):
        if claimer.may_search(now):
            claimer.search(server)
    assert rescans == [100.0, 110.3, 110.36]


# -- the order of a claim


def orders(turns: Turns, keys: list[Key], count: int, **waits: float) -> list[list[Key]]:
    """The next orders, if the first jobs of these queues have waited so many seconds."""
    return [turns.next(keys, lambda key: waits.get(key[0], 0.0)) for _ in range(count)]


@pytest.mark.promise("queues-take-turns")
def test_higher_priorities_come_first_and_queues_of_one_take_turns() -> None:
    keys = [(queue, level) for queue in "abc" for level in (0, 5, -5)]
    found = orders(Turns(), keys, 3)
    for order in found:
        assert [level for _, level in order] == [5, 5, 5, 0, 0, 0, -5, -5, -5]
        assert sorted(order) == sorted(keys)
    assert {order[3] for order in found} == {("a", 0), ("b", 0), ("c", 0)}


def test_queues_with_weights_come_first_as_often_as_these_say_and_evenly_mixed() -> None:
    turns = Turns({"critical": 6, "default": 3})
    keys: list[Key] = [("critical", 0), ("default", 0), ("low", 0)]
    found, again = ([order[0][0] for order in orders(turns, keys, 10)] for _ in range(2))
    assert Counter(found) == {"critical": 6, "default": 3, "low": 1}
    assert found != sorted(found)
    assert found == again


@pytest.mark.promise("priority-before-weights")
def test_priorities_come_before_weights() -> None:
    assert orders(Turns({"a": 9}), [("a", 0), ("b", 1)], 3) == [[("b", 1), ("a", 0)]] * 3


@pytest.mark.parametrize(
    ("low", "waits", "first_ones"),
    [
        (-2, {"low": 119, "default": 1}, {"default"}),
        (-2, {"low": 180}, {"low"}),
        (-2, {"low": 180, "default": 120}, {"default"}),
        (-1, {"low": 60}, {"low", "default"}),
    ],
    ids=["too short", "long enough", "both have waited", "of one level, they take turns"],
)
def test_what_has_waited_counts_as_a_higher_priority(
    low: int, waits: dict[str, float], first_ones: set[str]
) -> None:
    found = orders(Turns(aging=60), [("low", low), ("default", 0)], 4, **waits)
    assert {order[0][0] for order in found} == first_ones
