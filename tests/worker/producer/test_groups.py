"""Whose turn it is among groups: what a worker learns, and in which order jobs start."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from django_pgqueue import enqueue, enqueue_many
from django_pgqueue.jobs.claim import Claimed
from django_pgqueue.worker.producer.demand import Demand
from django_pgqueue.worker.producer.inbox import Orders
from django_pgqueue.worker.producer.ranges import FORGET_AFTER, SLICE, FirstDue, Groups, Mark, Places, in_turn
from tests.app import limit_tasks as tasks
from tests.support.factories import claimed
from tests.support.workers import run_due

CLOCK = "2026-11-21 01:38:16.123456+00"


def first(name: str, due_in: float = -10.0, pk: int = 5) -> FirstDue:
    return FirstDue("default", 0, "2026-11-21 01:38:06+00", pk, due_in, name)


def known(*names: str, weights: dict[str, int] | None = None) -> Groups:
    groups = Groups(weights or {})
    for name in names:
        groups.wake(first(name))
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
    groups.wake(first("c"))
    assert [name for name, _ in shares(groups, 6)] == ["a", "c"]


def test_what_a_claim_did_not_come_to_stays_awake() -> None:
    groups = known(*"abcd")
    asked = shares(groups, 2)
    groups.claimed(asked, rows("b"), whole=False)
    assert [name for name, _ in shares(groups, 2)] == ["c", "d", "b"]  # a was read before b


@pytest.mark.promise("groups-none")
def test_the_jobs_without_a_group_take_part() -> None:
    groups = known("a")
    plain = datetime.fromisoformat(CLOCK), 3
    assert shares(groups, 4, plain) == [("a", 2), (None, 2)]
    assert shares(groups, 4) == [("a", 4)]
    assert shares(groups, 4, plain) == [("a", 2), (None, 2)]
    groups.claimed([("a", 2), (None, 2)], rows(None, None), whole=True)
    assert not groups, "the statement for ranges is enough"


def test_a_group_keeps_its_turn_however_long_a_round_takes() -> None:
    places = Places(Orders(), {}, {}, None)
    places.learn([first(name) for name in "abc"], 0.0)
    assert places.claim_parameters(1, 0.0)["groups"][0] == "a"
    places.forget(10 * FORGET_AFTER)
    places.learn([first("a"), first("d")], 10 * FORGET_AFTER)
    order = [places.claim_parameters(1, 10 * FORGET_AFTER)["groups"][0] for _ in range(4)]
    assert order == ["b", "c", "a", "d"]


def test_a_pass_goes_through_all_names() -> None:
    groups = known()
    names = [f"{number:04}" for number in range(2 * SLICE + 7)]
    steps = 0
    while groups.in_pass:
        groups.passed([first(name) for name in names if name > (groups.after or "")][:SLICE], 1.0, 0.1)
        steps += 1
    assert (len(groups), steps) == (len(names), 3)


@pytest.mark.parametrize(
    ("now", "needed", "begins"), [(10.0, False, False), (17.0, False, True), (10.0, True, True)]
)
def test_the_pause_after_a_pass_depends_on_its_duration(now: float, needed: bool, begins: bool) -> None:
    groups = known()
    groups.passed([first("a")], 1.0, 0.3)
    groups.begin_pass(now, needed=needed)
    assert groups.in_pass is begins


def test_rows_start_in_turn() -> None:
    found = in_turn([*rows("a", "a", "a", "b", None), claimed(99, priority=5, group_key="z")])
    assert [(row.group_key, row.id) for row in found] == [
        ("z", 99), ("a", 10), ("b", 13), (None, 14), ("a", 11), ("a", 12),
    ]  # fmt: skip


@pytest.mark.django_db(transaction=True)
@pytest.mark.promise("groups-one-round")
def test_many_jobs_of_one_group_do_not_delay_the_only_job_of_another() -> None:
    tasks.SERVED.clear()
    enqueue_many(tasks.serve.bind("big", number) for number in range(3_000))
    enqueue(tasks.serve, "small", 0)
    enqueue_many(tasks.serve.bind(f"tenant {number}", 0) for number in range(20))
    run_due(threads=1)
    assert len(tasks.SERVED) == 3_021
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
