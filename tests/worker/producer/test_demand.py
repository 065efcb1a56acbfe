"""How many jobs a worker claims and holds: as many as can start soon, and as memory allows. No slow job holds
up others, in this worker or in the queue.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from django_pgqueue import enqueue_many
from django_pgqueue.jobs.claim import BATCH, Claimed
from django_pgqueue.jobs.finish import Outcome
from django_pgqueue.models import Job
from django_pgqueue.worker.executor.outcomes import Result
from django_pgqueue.worker.producer import demand
from django_pgqueue.worker.producer.demand import AHEAD, HOARD_SECONDS, MOST, PAUSE, Demand, Slots
from tests.app import worker_tasks as tasks
from tests.support.factories import claimed
from tests.support.workers import fresh, make_producer, run_due, until, working

QUICK = 1e-5
LARGE = "x" * (demand.HELD_CHARACTERS // 20)


def slots_that_learned(slots: int, seconds: float | None) -> Slots:
    found = Slots(slots)
    found.learn([] if seconds is None else [seconds] * 100)
    return found


@pytest.mark.parametrize(("slots", "seconds", "target", "wanted"), [
    pytest.param(4, None, 4, {0: 4}, id="before anything is known, only the slots are filled"),
    pytest.param(4, 10, 4, {0: 4, 3: 1, 4: 0}, id="slow jobs are never taken ahead"),
    pytest.param(4, QUICK, MOST, {0: BATCH}, id="quick jobs come in large batches"),
    pytest.param(1, 0, MOST, {}, id="no time"),
    pytest.param(2, 0.00999, 22, {}, id="what is ahead takes a tenth of a second"),
    pytest.param(
        2, 0.000999, 202, {1: 201, 90: 112, 110: 0, 202: 0, 400: 0}, id="it waits until half is gone"
    ),
    pytest.param(200, 0.01, MOST, {600: 400, 601: 0}, id="jobs that run do not count as held ahead"),
    pytest.param(5_000, 1e-6, 5_000, {0: 5_000}, id="more slots than the most are filled all the same"),
])  # fmt: skip
def test_how_many_jobs_are_wanted(
    slots: int, seconds: float | None, target: int, wanted: dict[int, int]
) -> None:
    found = slots_that_learned(slots, seconds)
    assert (found.target, {held: found.wanted(held) for held in wanted}) == (target, wanted)


@pytest.mark.parametrize(("rows", "target"), [
    # The other fields of the row take some characters.
    pytest.param([claimed(args=LARGE)] * 4, 19, id="large args"),
    pytest.param([claimed(kwargs=LARGE)] * 4, 19, id="large kwargs"),
    pytest.param([claimed(metadata=LARGE)] * 4, 19, id="large metadata"),
    pytest.param([claimed(errors=LARGE)] * 4, 19, id="large errors"),
    pytest.param([claimed(args="x" * demand.HELD_CHARACTERS)], 4, id="each slot gets one"),
    pytest.param(
        [claimed()] * 499 + [claimed(args="x" * 1_000_000)],
        MOST,
        id="the size of all counts, not the largest",
    ),
])  # fmt: skip
def test_of_large_jobs_only_as_many_are_held_as_memory_allows(rows: list[Claimed], target: int) -> None:
    slots = slots_that_learned(4, QUICK)
    slots.weigh(rows)
    assert (slots.target, slots.wanted(target)) == (target, 0)


def test_averages_rise_at_once_and_fall_gradually() -> None:
    slots = slots_that_learned(1, 0.001)
    assert slots.job_seconds == pytest.approx(0.001)
    slots.learn([1.0])
    assert slots.job_seconds == pytest.approx(1.0)
    slots.learn([0.001])
    assert 0.5 < slots.job_seconds < 1.0
    slots = slots_that_learned(4, QUICK)
    slots.weigh([claimed()] * 10)
    slots.weigh([claimed(args="x" * (demand.HELD_CHARACTERS // 100))])
    assert 95 < slots.target < 100
    slots.weigh([claimed()] * 10)
    assert 100 < slots.target < 200
    for _ in range(50):
        slots.weigh([claimed()] * 10)
    assert slots.target == MOST


# -- async jobs with slots of their own

THREADS, SLOTS = 4, 2_000


class Two(Demand):
    """A demand of two kinds, with a clock of the test, which says what the executor holds."""

    now = 100.0

    def __init__(self) -> None:
        self.holds, self.sought = {"sync": 0, "async": 0}, list[str]()
        executor: Any = SimpleNamespace(held=self.holds.values, find_task=self.sought.append)
        super().__init__(THREADS, SLOTS, executor, {"sync": False, "async": True}.get)

    def claim(self, text: str) -> str:
        """Dispatch a claim of these jobs, and return those that are requeued."""
        runs, others = self.split(rows(text))
        for row in runs:
            self.holds[row.task_path] += 1
        return "".join(row.task_path[0] for row in others)


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> Two:
    two = Two()
    monkeypatch.setattr(demand, "monotonic", lambda: two.now)
    return two


def rows(text: str) -> list[Claimed]:
    paths = {"s": "sync", "a": "async", "?": "unknown"}
    return [claimed(number, paths[letter]) for number, letter in enumerate(text)]


def ran(text: str, seconds: float) -> list[Result]:
    return [Result(row, Outcome(row.id, row.lease), seconds) for row in rows(text)]


def test_async_jobs_soon_fill_all_slots_and_do_not_wait_for_threads(two: Two) -> None:
    claims = 0
    while two.holds["async"] < SLOTS:
        assert two.claim("a" * two.wanted(0, 0)) == ""
        claims += 1
    assert claims <= 10
    assert two.wanted(SLOTS, 0) <= THREADS + BATCH  # only the threads have room


def test_jobs_without_room_go_back_and_those_behind_them_are_looked_for_now_and_then(two: Two) -> None:
    assert two.claim("s" * 10) == "s" * 6
    assert two.wanted(4, 0) == 0
    pauses = []
    for _ in range(8):
        began = two.now
        while not two.wanted(4, 0):
            two.now += PAUSE / 2
        pauses.append(two.now - began)
        assert two.wanted(4, 0) <= max(BATCH, SLOTS)
        assert two.claim("ssss") == "ssss"
    assert pauses == [1, 2, 4, 8, 16, 30, 30, 30]
    two.now += 30
    assert two.claim("ssssaaaa") == "ssss"
    assert two.holds["async"] == 4
    two.now += PAUSE
    assert two.wanted(8, 0) >= BATCH
    two.holds["sync"] = 3
    two.now -= PAUSE / 2
    assert two.wanted(7, 0) >= 1  # a thread is free: there is no pause


def test_async_jobs_go_on_without_a_pause_while_threads_are_busy(two: Two) -> None:
    assert two.claim("ssss" + "a" * 96) == ""
    for _ in range(5):
        two.holds["async"] = 0
        wanted = two.wanted(4, 0)
        assert wanted >= BATCH
        assert two.claim("a" * wanted) == ""


def test_the_task_of_an_unknown_job_is_found_although_no_thread_is_free(two: Two) -> None:
    assert two.claim("ssss??") == "uu"
    assert two.sought == ["unknown"]


def test_run_times_count_for_their_kind(two: Two) -> None:
    two.learn([*ran("ssss", 0.001), *ran("aaaa", 10.0)])
    assert two.sync.job_seconds == pytest.approx(0.001)
    assert two.target == THREADS + int(THREADS * AHEAD / 0.001) + SLOTS


def test_jobs_of_one_kind_that_wait_go_back_while_the_other_kind_comes_and_goes(two: Two) -> None:
    two.learn(ran("s", 0.01))
    assert two.claim("s" * 20) == ""
    assert not two.hoards(20, two.now)
    two.now += HOARD_SECONDS + 0.1
    two.claim("aaaa")
    assert two.hoards(24, two.now)
    assert two.sync.job_seconds == HOARD_SECONDS
    assert not two.hoards(24, two.now)


# -- a worker


def count_done(ids: list[int]) -> int:
    return Job.objects.filter(pk__in=ids, status="done").count()


def warm() -> None:
    """Let a worker assume that jobs are fast."""
    ids = enqueue_many(tasks.noop.bind() for _ in range(200)).ids
    until(lambda: count_done(ids) == 200)


@pytest.mark.django_db(transaction=True)
def test_a_slow_job_among_quick_ones_holds_none_of_them() -> None:
    """Those behind it go to another thread, and those before it are reported."""
    quick = [tasks.noop.bind() for _ in range(50)]
    with working(threads=2):
        warm()
        ids = enqueue_many([*quick, tasks.hold.bind("slow"), *quick]).ids
        tasks.runs("slow")
        until(lambda: count_done(ids) == 100)
        assert fresh(ids[50]).status == "running"
        tasks.release("slow")


@pytest.mark.django_db(transaction=True)
def test_a_worker_that_knows_nothing_takes_no_more_than_it_has_slots_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ids = enqueue_many(tasks.hold.bind("slow") for _ in range(10)).ids
    with working(threads=3) as worker:
        until(lambda: Job.objects.filter(pk__in=ids, status="running").count() == 3)
        # It is woken for some more rounds, each of which could claim too many jobs.
        producer = worker.producer
        room = Mock(wraps=producer._room)
        monkeypatch.setattr(producer, "_room", room)

        def has_turned() -> bool:
            producer._waker.interrupt()
            return room.call_count > 5

        until(has_turned)
        assert Job.objects.filter(pk__in=ids, status="running").count() == 3
        tasks.gate("slow").set()
        until(lambda: count_done(ids) == 10)


@pytest.mark.django_db(transaction=True)
def test_jobs_claimed_ahead_of_slow_ones_go_back_for_others() -> None:
    with working(threads=2):
        warm()
        quick = [tasks.noop.bind() for _ in range(100)]
        ids = enqueue_many([tasks.hold.bind("slow"), tasks.ahold.bind("slow"), *quick]).ids
        tasks.runs("slow")
        # Both slots are in use. Another worker gets all other jobs, and this worker holds none of them.
        until(lambda: run_due() and count_done(ids) == 100)
        assert {fresh(pk).status for pk in ids[:2]} == {"running"}
        tasks.gate("slow").set()
        until(lambda: count_done(ids) == 102)
    assert set(Job.objects.filter(pk__in=ids[2:]).values_list("attempts", flat=True)) == {1}


@pytest.mark.django_db(transaction=True)
def test_few_large_jobs_are_held_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demand, "HELD_CHARACTERS", 110_000)
    ids = enqueue_many(tasks.see.bind("x" * 10_000) for _ in range(60)).ids
    producer = make_producer(burst=True, threads=2)
    held: list[int] = []
    submit = producer._executor.submit

    def count(rows: list[Claimed], job_seconds: float) -> None:
        held.append(len(producer.jobs) - len(producer._reporter))
        submit(rows, job_seconds)

    monkeypatch.setattr(producer._executor, "submit", count)
    run_due(producer)
    assert count_done(ids) == 60
    assert max(held) <= 10, held


@pytest.mark.django_db(transaction=True)
def test_every_turn_ends_in_a_sleep_while_jobs_wait_for_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its turns cost the threads time."""
    enqueue_many(tasks.nap.bind(0.002) for _ in range(100))
    producer = make_producer(burst=True, threads=2)
    turn, sleep = Mock(wraps=producer._turn), Mock(wraps=producer._waker.sleep)
    monkeypatch.setattr(producer, "_turn", turn)
    monkeypatch.setattr(producer._waker, "sleep", sleep)
    run_due(producer)
    # A turn that is followed at once by another one claims more jobs, and it claims many of them.
    assert turn.call_count - sleep.call_count < 40
