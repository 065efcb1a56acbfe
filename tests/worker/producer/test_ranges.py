from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from django_pgqueue.jobs.claim import Claimed
from django_pgqueue.worker.options import WorkerOptions
from django_pgqueue.worker.producer.claimer import Claimer
from django_pgqueue.worker.producer.inbox import Orders
from django_pgqueue.worker.producer.ranges import FORGET_AFTER, FirstDue, Places, Turns
from tests.support.jobs import add
from tests.support.sessions import Connect, Connection

CLOCK = datetime(2030, 1, 1, 12, tzinfo=UTC)  # of the database
SECOND = timedelta(seconds=1)


def first(queue_name: str = "a", priority: int = 0, ago: float = 10, pk: int = 5) -> FirstDue:
    """The first job of a range, due `ago` seconds before the clock."""
    return FirstDue(queue_name, priority, str(CLOCK - ago * SECOND), pk, -ago)


def row(pk: int, ago: float, queue_name: str = "a", priority: int = 0, clock: datetime = CLOCK) -> Claimed:
    """A job that was claimed at the clock."""
    nothing: Any = None
    values = dict.fromkeys(Claimed._fields, nothing)
    values.update(
        id=pk, queue_name=queue_name, priority=priority, run_after=str(CLOCK - ago * SECOND),
        last_attempted_at=str(clock), waited=ago,
    )  # fmt: skip
    return Claimed(**values)


def places() -> Places:
    return Places(Orders(), {}, {}, None)


def advance(of: Places, rows: list[Claimed], now: float) -> None:
    of.claimed(rows, {}, now, whole=False, refused=False)


def marks(of: Places) -> dict[tuple[str, int], tuple[datetime, int]]:
    queues, kinds, priorities, times, ids = of.known(rescan=False)
    assert not any(kinds)
    return dict(zip(zip(queues, priorities, strict=True), zip(times, ids, strict=True), strict=True))


def order(of: Places) -> list[tuple[str, int]]:
    return Turns().next(of.keys(), lambda key: 0.0)


def test_a_range_begins_just_below_its_first_job() -> None:
    known = places()
    assert known.keys() == []
    known.learn([first(ago=10, pk=5)], 0)
    assert marks(known) == {("a", 0): (CLOCK - 10 * SECOND, 4)}


@pytest.mark.parametrize("ago", [0.4, 0, -1, -86400])
def test_a_mark_is_never_later_than_half_a_second_ago(ago: float) -> None:
    known = places()
    known.learn([first(ago=ago)], 0)
    assert marks(known) == {("a", 0): (CLOCK - 0.5 * SECOND, 0)}


def test_a_claim_moves_the_mark_to_its_last_job() -> None:
    known = places()
    known.learn([first(ago=10), first("b", ago=10)], 0)
    advance(known, [row(5, 10), row(6, 9), row(7, 3)], 1)
    assert marks(known) == {("a", 0): (CLOCK - 3 * SECOND, 7), ("b", 0): (CLOCK - 10 * SECOND, 4)}


def test_jobs_of_one_time_are_told_apart_by_their_id() -> None:
    known = places()
    known.learn([first(ago=10)], 0)
    advance(known, [row(5, 10), row(6, 10)], 1)
    assert marks(known) == {("a", 0): (CLOCK - 10 * SECOND, 6)}


@pytest.mark.parametrize("ago", [0.4, 0])
def test_a_claim_moves_the_mark_no_further_than_half_a_second_ago(ago: float) -> None:
    known = places()
    known.learn([first(ago=10)], 0)
    advance(known, [row(7, ago)], 1)
    assert marks(known) == {("a", 0): (CLOCK - 0.5 * SECOND, 0)}


def test_a_claim_never_lowers_a_mark() -> None:
    known = places()
    known.learn([first(ago=10)], 0)
    advance(known, [row(7, 3)], 1)
    advance(known, [row(6, 9)], 1)
    advance(known, [row(8, 0, clock=CLOCK - 60 * SECOND)], 1)
    advance(known, [], 1)
    assert marks(known) == {("a", 0): (CLOCK - 3 * SECOND, 7)}


def test_a_head_below_the_mark_lowers_it_and_one_above_does_not_raise_it() -> None:
    known = places()
    known.learn([first(ago=10)], 0)
    known.learn([first(ago=5)], 0)
    assert marks(known) == {("a", 0): (CLOCK - 10 * SECOND, 4)}
    known.learn([first(ago=60, pk=9)], 0)
    assert marks(known) == {("a", 0): (CLOCK - 60 * SECOND, 8)}


@pytest.mark.promise("queues-take-turns")
def test_higher_priorities_come_first_and_queues_of_one_take_turns() -> None:
    known = places()
    known.learn([first("a", 0), first("b", 0), first("c", 0), first("z", 5), first("a", -3)], 0)
    turns = Turns()
    orders = [turns.next(known.keys(), lambda key: 0.0) for _ in range(3)]
    for found in orders:
        assert found[0] == ("z", 5)
        assert found[-1] == ("a", -3)
        assert sorted(found[1:-1]) == [("a", 0), ("b", 0), ("c", 0)]
    assert {found[1] for found in orders} == {("a", 0), ("b", 0), ("c", 0)}


def test_a_range_without_jobs_is_forgotten_after_a_minute() -> None:
    known = places()
    known.learn([first("a"), first("b"), first("c")], 0)
    advance(known, [row(5, 3, "b")], 30)
    known.learn([first("c")], 50)
    known.forget(FORGET_AFTER)
    assert len(known.keys()) == 3
    known.forget(FORGET_AFTER + 1)
    assert marks(known).keys() == {("b", 0), ("c", 0)}
    assert {queue for queue, _ in order(known)} == {"b", "c"}


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
    claimer._places.learn([first()], 100.0)
    claimer.search(server)
    cost = 0.0001
    for now in (110.1, 110.3, 110.34, 110.36):
        if claimer.may_search(now):
            claimer.search(server)
    assert rescans == [100.0, 110.3, 110.36]


# -- what the search in SQL returns

FIRST_DUE = (
    "SELECT queue_name, priority, id FROM _pgqueue_first_due(%s::text[], %s::text[], %s, %s, %s, %s, %s)"
)


@pytest.fixture
def jobs(connect: Connect) -> tuple[Connection, dict[tuple[str, int], list[int]]]:
    """Two jobs in each of several ranges."""
    one = connect(autocommit=True)
    found = [("a", 100), ("a", 0), ("a", -100), ("b", 7), ("b", 0), ("d", 0), ("d", -1)]
    return one, {(name, level): add(one, 2, queue_name=name, priority=level) for name, level in found}


def search(
    one: Connection, queues: list[str] | None = None, but: tuple[str, ...] = (), known: tuple[Any, ...] = ()
) -> set[tuple[str, int, int]]:
    names, *others = [list(column) for column in zip(*known, strict=True)] or [[], [], [], []]
    found = one.execute(FIRST_DUE, (queues, list(but), names, [False] * len(names), *others)).fetchall()
    assert len(found) == len(set(found))
    return set(found)


@pytest.mark.django_db(transaction=True)
def test_a_search_finds_the_head_of_every_range(
    jobs: tuple[Connection, dict[tuple[str, int], list[int]]],
) -> None:
    one, ranges = jobs
    given: list[list[str] | None] = [None, ["a", "b", "d"], ["d", "a"], ["b"], ["c"], ["c", "d", "e"], []]
    excluded: list[tuple[str, ...]] = [(), ("a",), ("b", "d"), ("c",)]
    knowledge: list[tuple[tuple[str, int], ...]] = [
        (), (("a", 100),), (("a", 0), ("b", 0)), (("b", 7), ("d", -1)), (("a", -100),),
    ]  # fmt: skip
    tried = 0
    for queues, but, known in itertools.product(given, excluded, knowledge):
        wanted = {key for key in ranges if (key[0] in queues if queues is not None else key[0] not in but)}
        if set(known) <= wanted:  # a worker knows only ranges of its own queues
            marks_of = tuple((*key, datetime(2000, 1, 1, tzinfo=UTC), 0) for key in known)
            expected = {(*key, ranges[key][0]) for key in wanted}
            assert search(one, queues, but, marks_of) == expected, (queues, but, known)
            tried += 1
    assert tried > 50


@pytest.mark.django_db(transaction=True)
def test_a_search_looks_above_the_marks_of_known_ranges(
    jobs: tuple[Connection, dict[tuple[str, int], list[int]]],
) -> None:
    one, ranges = jobs
    first, second = ranges["a", 0]
    row = one.execute("SELECT run_after FROM pgqueue_job_live WHERE id = %s", (first,)).fetchone()
    assert row is not None
    found = search(one, None, (), (("a", 0, row[0], first), ("b", 7, datetime(2100, 1, 1, tzinfo=UTC), 0)))
    assert {pk for name, level, pk in found if (name, level) == ("a", 0)} == {second}
    assert not {pk for name, level, pk in found if (name, level) == ("b", 7)}
    assert len(found) == len(ranges) - 1
