"""How many jobs a worker claims that has slots of their own for async jobs, and which it requeues."""

from __future__ import annotations

import pytest

from django_pgqueue.jobs.claim import BATCH, Claimed
from django_pgqueue.jobs.finish import Outcome
from django_pgqueue.worker.executor.outcomes import Result
from django_pgqueue.worker.producer import demand
from django_pgqueue.worker.producer.demand import AHEAD, HOARD_SECONDS, PAUSE, Demand
from tests.support.rows import claimed

THREADS, SLOTS = 4, 2_000


class Executor:
    """Holds the jobs that it gets until the test says that they have ended."""

    def __init__(self) -> None:
        self.sync = self.asynchronous = 0
        self.sought: list[str] = []

    def held(self) -> tuple[int, int]:
        return self.sync, self.asynchronous

    def find_task(self, path: str) -> None:
        self.sought.append(path)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(demand, "monotonic", clock)
    return clock


@pytest.fixture
def executor() -> Executor:
    return Executor()


@pytest.fixture
def two(clock: Clock, executor: Executor) -> Demand:
    return Demand(THREADS, SLOTS, executor, {"sync": False, "async": True}.get)  # type: ignore[arg-type]


def rows(text: str) -> list[Claimed]:
    paths = {"s": "sync", "a": "async", "?": "unknown"}
    return [claimed(number, paths[letter]) for number, letter in enumerate(text)]


def claim(two: Demand, executor: Executor, text: str) -> str:
    """Dispatch a claim of these jobs, and return those that are requeued."""
    runs, others = two.split(rows(text))
    for row in runs:
        if row.task_path == "async":
            executor.asynchronous += 1
        else:
            executor.sync += 1
    return "".join(row.task_path[0] for row in others)


def test_async_jobs_soon_fill_all_slots_and_do_not_wait_for_threads(two: Demand, executor: Executor) -> None:
    claims = 0
    while executor.asynchronous < SLOTS:
        assert claim(two, executor, "a" * two.wanted(0, 0)) == ""
        claims += 1
    assert claims <= 10
    assert two.wanted(SLOTS, 0) <= THREADS + BATCH  # only the threads have room


def test_sync_jobs_are_claimed_as_without_async_slots(two: Demand, executor: Executor) -> None:
    assert claim(two, executor, "ss") == ""
    assert two.wanted(2, 0) == 2
    executor.sync = 0
    assert two.wanted(0, 0) == THREADS


def test_jobs_without_room_go_back_and_those_behind_them_are_looked_for_now_and_then(
    two: Demand, executor: Executor, clock: Clock
) -> None:
    assert claim(two, executor, "s" * 10) == "s" * 6
    assert two.wanted(4, 0) == 0
    pauses = []
    for _ in range(8):
        began = clock.now
        while not two.wanted(4, 0):
            clock.now += PAUSE / 2
        pauses.append(clock.now - began)
        assert two.wanted(4, 0) <= max(BATCH, SLOTS)
        assert claim(two, executor, "ssss") == "ssss"
    assert pauses == [1, 2, 4, 8, 16, 30, 30, 30]
    clock.now += 30
    assert claim(two, executor, "ssssaaaa") == "ssss"
    assert executor.asynchronous == 4
    clock.now += PAUSE
    assert two.wanted(8, 0) >= BATCH
    executor.sync = 3
    clock.now -= PAUSE / 2
    assert two.wanted(7, 0) >= 1  # a thread is free: there is no pause


def test_async_jobs_go_on_without_a_pause_while_threads_are_busy(two: Demand, executor: Executor) -> None:
    assert claim(two, executor, "ssss" + "a" * 96) == ""
    for _ in range(5):
        executor.asynchronous = 0
        wanted = two.wanted(4, 0)
        assert wanted >= BATCH
        assert claim(two, executor, "a" * wanted) == ""


def test_a_mix_is_claimed_so_that_few_sync_jobs_have_to_go_back(two: Demand, executor: Executor) -> None:
    for _ in range(5):
        claim(two, executor, "sa" * 2)
        executor.sync = 0
    assert two.wanted(10, 0) == 2 * THREADS


def test_the_task_of_an_unknown_job_is_found_although_no_thread_is_free(
    two: Demand, executor: Executor
) -> None:
    assert claim(two, executor, "ssss??") == "uu"
    assert executor.sought == ["unknown"]


def test_run_times_count_for_their_kind(two: Demand, executor: Executor) -> None:
    fast = [Result(row, Outcome(row.id, row.lease), 0.001) for row in rows("ssss")]
    slow = [Result(row, Outcome(row.id, row.lease), 10.0) for row in rows("aaaa")]
    two.learn([*fast, *slow])
    assert two.job_seconds == pytest.approx(0.001)
    assert two.target == THREADS + int(THREADS * AHEAD / 0.001) + SLOTS


def test_jobs_of_one_kind_that_wait_go_back_while_the_other_kind_comes_and_goes(
    two: Demand, executor: Executor, clock: Clock
) -> None:
    two.learn([Result(row, Outcome(row.id, row.lease), 0.01) for row in rows("s")])
    assert claim(two, executor, "s" * 20) == ""
    assert not two.hoards(20, clock.now)
    clock.now += HOARD_SECONDS + 0.1
    claim(two, executor, "aaaa")
    assert two.hoards(24, clock.now)
    assert two.job_seconds == HOARD_SECONDS
    assert not two.hoards(24, clock.now)
