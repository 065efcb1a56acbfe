"""Where a worker looks for jobs: the marks of ranges, in which order a claim reads them, and whose turn it is
among groups.
"""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from django_pgqueue import enqueue, enqueue_many
from django_pgqueue.jobs.claim import Claimed
from django_pgqueue.worker.options import WorkerOptions
from django_pgqueue.worker.producer import ranges
from django_pgqueue.worker.producer.claimer import Claimer
from django_pgqueue.worker.producer.demand import Demand
from django_pgqueue.worker.producer.inbox import Orders
from django_pgqueue.worker.producer.ranges import FORGET_AFTER, FirstDue, Groups, Key, Mark, Places, Turns
from tests.app import limit_tasks as tasks
from tests.support.factories import claimed
from tests.support.workers import run_due

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
    return Places(Orders(), {})


def advance(of: Places, rows: list[Claimed], now: float) -> None:
    of.claimed(rows, {}, now, whole=False, refused=False)


def marks(of: Places) -> dict[tuple[str, int], tuple[datetime, int]]:
    queues, kinds, priorities, times, ids = of.known(rescan=False)
    assert not any(kinds)
    return dict(zip(zip(queues, priorities, strict=True), zip(times, ids, strict=True), strict=True))


FIRST = [first()]


#: What is found and claimed, and the mark after that.
MARKS: dict[str, tuple[list[list[Any]], tuple[float, int]]] = {
    "just below the first job": ([], (10, 4)),
    **{f"never later than half a second ago: {due}": ([[first(due=due)]], (0.5, 0))
       for due in (0.4, 0, -1, -86400)},
    "a claim moves it to its last job": ([FIRST, [row(5, 10), row(6, 9), row(7, 3)]], (3, 7)),
    "jobs of one time differ by their id": ([FIRST, [row(5, 10), row(6, 10)]], (10, 6)),
    **{f"a claim moves it up to half a second ago: {due}": ([FIRST, [row(7, due)]], (0.5, 0))
       for due in (0.4, 0)},
    "a claim never lowers it": ([FIRST, [row(7, 3)], [row(6, 9)], [row(8, 0, clock=ago(60))]], (3, 7)),
    "a first job above does not raise it": ([FIRST, [first(due=5)]], (10, 4)),
    "a first job below lowers it": ([FIRST, [first(due=60, pk=9)]], (60, 8)),
}  # fmt: skip


@pytest.mark.parametrize("case", MARKS)
def test_the_mark_of_a_range(case: str) -> None:
    steps, mark = MARKS[case]
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
    firsts = [first(f"q{number}") for number in range(ranges.MOST_QUIET + 20)]
    for number, each in enumerate(firsts):
        known.learn([each], number / 100)
    known.forget(10)
    assert len(known.keys()) == len(firsts), "those with jobs are kept"
    asked = {"queues": [each.queue_name for each in firsts], "priorities": [0] * len(firsts)}
    known.claimed([], asked, 10, whole=True, refused=False)
    known.forget(20)
    assert known.keys() == [(each.queue_name, 0) for each in firsts[-ranges.MOST_QUIET :]]
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


@pytest.mark.parametrize(("low", "waits", "first_ones"), [
    (-2, {"low": 119, "default": 1}, {"default"}), (-2, {"low": 180}, {"low"}),
    (-2, {"low": 180, "default": 120}, {"default"}), (-1, {"low": 60}, {"low", "default"}),
], ids=["too short", "long enough", "both have waited", "of one level, they take turns"])  # fmt: skip
def test_what_has_waited_counts_as_a_higher_priority(
    low: int, waits: dict[str, float], first_ones: set[str]
) -> None:
    found = orders(Turns(aging=60), [("low", low), ("default", 0)], 4, **waits)
    assert {order[0][0] for order in found} == first_ones


# -- groups


def of_group(name: str, due_in: float = -10.0, pk: int = 5) -> FirstDue:
    return FirstDue("default", 0, "2026-11-21 01:38:06+00", pk, due_in, name)


def known(*names: str, weights: dict[str, int] | None = None) -> Groups:
    groups = Groups(weights or {})
    for name in names:
        groups.wake(of_group(name))
    return groups


def shares(groups: Groups, limit: int, plain: Mark | None = None) -> list[tuple[str | None, int]]:
    return [(group, quota) for _, _, group, quota in groups.shares(limit, plain)]


def rows(*names: str | None) -> list[Claimed]:
    return [claimed(pk, group_key=name) for pk, name in enumerate(names, 10)]


@pytest.mark.promise("groups-one-round")
def test_a_claim_takes_one_of_each_and_the_next_claim_goes_on_behind_them() -> None:
    groups = known(*"abcde")
    assert [shares(groups, 2)[:2] for _ in range(3)] == [
        [("a", 1), ("b", 1)], [("c", 1), ("d", 1)], [("e", 1), ("a", 1)]
    ]  # fmt: skip


@pytest.mark.promise("groups-reserve-nothing")
@pytest.mark.parametrize(
    ("names", "limit", "weights", "quotas"),
    [("abc", 10, {}, [4, 4, 4]), ("a", 10, {}, [10]), ("ab", 8, {"a": 3}, [6, 2])],
)
def test_few_groups_share_the_room(
    names: str, limit: int, weights: dict[str, int], quotas: list[int]
) -> None:
    assert shares(known(*names, weights=weights), limit) == list(zip(names, quotas, strict=True))


def test_more_are_named_than_there_is_room_for_in_case_some_are_empty() -> None:
    names = [f"{number:02}" for number in range(40)]
    groups = known(*names)
    assert [name for name, _ in shares(groups, 3)] == names[:11]
    assert shares(groups, 3)[0] == ("03", 1)


def test_a_group_that_gave_less_than_its_quota_sleeps_until_it_has_work() -> None:
    groups = known(*"abc")
    asked = shares(groups, 6)
    assert asked == [("a", 2), ("b", 2), ("c", 2)]
    groups.claimed(asked, rows("a", "a", "b"), whole=True)
    assert [name for name, _ in shares(groups, 6)] == ["a"]
    groups.wake(of_group("c"))
    assert [name for name, _ in shares(groups, 6)] == ["a", "c"]


def test_what_a_claim_did_not_come_to_stays_awake() -> None:
    groups = known(*"abcd")
    asked = shares(groups, 2)
    groups.claimed(asked, rows("b"), whole=False)
    assert [name for name, _ in shares(groups, 2)] == ["c", "d", "b"]  # a was read before b


@pytest.mark.promise("groups-none")
def test_the_jobs_without_a_group_take_part() -> None:
    groups = known("a")
    plain = CLOCK, 3
    assert shares(groups, 4, plain) == [("a", 2), (None, 2)]
    assert shares(groups, 4) == [("a", 4)]
    assert shares(groups, 4, plain) == [("a", 2), (None, 2)]
    groups.claimed([("a", 2), (None, 2)], rows(None, None), whole=True)
    assert not groups, "the statement for ranges is enough"


def test_a_group_keeps_its_turn_however_long_a_round_takes() -> None:
    known = places()
    known.learn([of_group(name) for name in "abc"], 0.0)
    assert known.claim_parameters(1, 0.0)["groups"][0] == "a"
    known.forget(10 * FORGET_AFTER)
    known.learn([of_group("a"), of_group("d")], 10 * FORGET_AFTER)
    order = [known.claim_parameters(1, 10 * FORGET_AFTER)["groups"][0] for _ in range(4)]
    assert order == ["b", "c", "a", "d"]


def test_a_pass_goes_through_all_names() -> None:
    groups = known()
    names = [f"{number:04}" for number in range(2 * ranges.SLICE + 7)]
    steps = 0
    while groups.after is not None:
        groups.passed(
            [of_group(name) for name in names if name > (groups.after or "")][: ranges.SLICE], 1.0, 0.1
        )
        steps += 1
    assert (len(groups), steps) == (len(names), 3)


@pytest.mark.parametrize(
    ("now", "needed", "begins"), [(10.0, False, False), (17.0, False, True), (10.0, True, True)]
)
def test_the_pause_after_a_pass_depends_on_its_duration(now: float, needed: bool, begins: bool) -> None:
    groups = known()
    groups.passed([of_group("a")], 1.0, 0.3)
    groups.begin_pass(now, needed=needed)
    assert (groups.after is not None) is begins


def test_rows_start_in_turn() -> None:
    found = ranges.in_turn([*rows("a", "a", "a", "b", None), claimed(99, priority=5, group_key="z")])
    assert [(row.group_key, row.id) for row in found] == [
        ("z", 99), ("a", 10), ("b", 13), (None, 14), ("a", 11), ("a", 12),
    ]  # fmt: skip


@pytest.mark.django_db(transaction=True)
@pytest.mark.promise("groups-one-round")
def test_many_jobs_of_one_group_do_not_delay_the_only_job_of_another() -> None:
    tasks.SERVED.clear()
    enqueue_many(tasks.serve.bind("big", number) for number in range(1_000))
    enqueue(tasks.serve, "small", 0)
    enqueue_many(tasks.serve.bind(f"tenant {number}", 0) for number in range(20))
    run_due(threads=1)
    assert len(tasks.SERVED) == 1_021
    places = {group: place for place, (group, _) in reversed(list(enumerate(tasks.SERVED)))}
    # The first claim may know only one group, and take more of it.
    assert max(places.values()) <= 200


@pytest.mark.django_db(transaction=True)
@pytest.mark.promise("groups-order")
def test_jobs_with_and_without_a_group_in_one_queue_all_run_and_each_kind_in_its_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # On a busy machine, jobs look long, and those that were claimed ahead are requeued behind the others.
    monkeypatch.setattr(Demand, "hoards", lambda *_: False)
    tasks.SERVED.clear()
    for number in range(40):
        enqueue(tasks.serve.using(group_key="a" if number % 4 else "b"), "given", number)
        enqueue(tasks.plain, number)
    enqueue(tasks.serve.using(run_after=timedelta(hours=1)), "later", 0)
    run_due(threads=1)
    for kind in ("given", None):
        assert sorted(number for group, number in tasks.SERVED if group == kind) == list(range(40))
    plain = [number for group, number in tasks.SERVED if group is None]
    assert plain == sorted(plain)
