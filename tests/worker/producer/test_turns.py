"""In which order a claim reads its ranges."""

from __future__ import annotations

from collections import Counter

import pytest

from django_pgqueue.worker.producer.ranges import Key, Turns


def never(key: Key) -> float:
    return 0.0


def firsts(turns: Turns, keys: list[Key], count: int) -> list[str]:
    return [turns.next(keys, never)[0][0] for _ in range(count)]


def test_queues_with_weights_come_first_as_often_as_these_say_and_evenly_mixed() -> None:
    turns = Turns({"critical": 6, "default": 3})
    keys: list[Key] = [("critical", 0), ("default", 0), ("low", 0)]
    found = firsts(turns, keys, 10)
    assert Counter(found) == {"critical": 6, "default": 3, "low": 1}
    assert found != sorted(found)
    assert found == firsts(turns, keys, 10)


@pytest.mark.promise("priority-before-weights")
def test_priorities_come_before_weights() -> None:
    turns = Turns({"a": 9})
    keys: list[Key] = [("a", 0), ("b", 1)]
    assert [turns.next(keys, never) for _ in range(3)] == [[("b", 1), ("a", 0)]] * 3


def test_every_range_is_in_every_order() -> None:
    turns = Turns({"a": 3, "b": 2})
    keys = [(queue, level) for queue in "abc" for level in (5, 0, -5)]
    for _ in range(12):
        order = turns.next(keys, never)
        assert sorted(order) == sorted(keys)
        assert [level for _, level in order] == [5, 5, 5, 0, 0, 0, -5, -5, -5]


def test_what_has_waited_long_enough_counts_as_a_higher_priority() -> None:
    turns = Turns(aging=60)
    keys: list[Key] = [("low", -2), ("default", 0)]
    waits = {("low", -2): 119.0, ("default", 0): 1.0}
    assert turns.next(keys, waits.__getitem__)[0] == ("default", 0)
    waits["low", -2] = 180.0
    assert turns.next(keys, waits.__getitem__)[0] == ("low", -2)
    waits["default", 0] = 120.0
    assert turns.next(keys, waits.__getitem__)[0] == ("default", 0)


def test_ranges_of_which_one_has_risen_to_the_level_of_the_other_take_turns() -> None:
    turns = Turns(aging=60)
    keys: list[Key] = [("low", -1), ("default", 0)]
    found = {turns.next(keys, {("low", -1): 60.0, ("default", 0): 0.0}.__getitem__)[0] for _ in range(4)}
    assert found == {("low", -1), ("default", 0)}
