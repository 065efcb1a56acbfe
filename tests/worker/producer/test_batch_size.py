"""How many jobs to claim: as many as can start soon, in large batches if they are fast and
small.
"""

from __future__ import annotations

import pytest

from django_pgqueue.jobs.claim import BATCH, Claimed
from django_pgqueue.worker.producer.demand import AHEAD, HELD_CHARACTERS, MOST, Slots
from tests.support.rows import claimed


def test_before_anything_is_known_only_the_slots_are_filled() -> None:
    slots = Slots(4)
    assert slots.target == 4
    assert slots.wanted(0) == 4


def test_slow_jobs_are_never_taken_ahead() -> None:
    slots = Slots(4)
    slots.learn([10.0])
    assert slots.wanted(0) == 4
    assert slots.wanted(3) == 1
    assert slots.wanted(4) == 0


def test_quick_jobs_come_in_large_batches() -> None:
    slots = Slots(4)
    slots.learn([1e-5] * 100)
    assert slots.target == MOST
    assert slots.wanted(0) == BATCH


def test_what_is_ahead_takes_a_tenth_of_a_second() -> None:
    slots = Slots(2)
    slots.learn([0.01])
    assert slots.target == 2 + 2 * AHEAD / 0.01


def test_it_waits_until_half_is_gone() -> None:
    slots = Slots(2)
    slots.learn([0.001])
    assert slots.target == 202
    assert slots.wanted(110) == 0
    assert slots.wanted(1) == 201
    assert slots.wanted(90) == 112
    assert slots.wanted(202) == 0
    assert slots.wanted(400) == 0


def test_jobs_that_run_do_not_count_as_held_ahead() -> None:
    slots = Slots(200)
    slots.learn([0.01])
    assert slots.target == MOST
    assert slots.wanted(601) == 0
    assert slots.wanted(600) == 400


def test_slower_counts_at_once_faster_by_and_by() -> None:
    slots = Slots(1)
    slots.learn([0.001])
    assert slots.job_seconds == pytest.approx(0.001)
    slots.learn([1.0])
    assert slots.job_seconds == pytest.approx(1.0)
    slots.learn([0.001])
    assert 0.5 < slots.job_seconds < 1.0
    for _ in range(50):
        slots.learn([0.001])
    assert slots.job_seconds == pytest.approx(0.001, rel=0.01)


def test_it_learns_nothing_from_nothing() -> None:
    slots = Slots(1)
    before = slots.job_seconds
    slots.learn([])
    assert slots.job_seconds == before
    slots.learn([0.0])
    assert slots.target == MOST


def test_more_slots_than_the_most_are_filled_all_the_same() -> None:
    slots = Slots(5_000)
    slots.learn([1e-6])
    assert slots.target == 5_000
    assert slots.wanted(0) == 5_000


LARGE = "x" * (HELD_CHARACTERS // 20)


@pytest.mark.parametrize(
    "row",
    [claimed(args=LARGE), claimed(kwargs=LARGE), claimed(metadata=LARGE), claimed(errors=LARGE)],
    ids=["args", "kwargs", "metadata", "errors"],
)
def test_of_large_jobs_only_as_many_are_held_as_memory_allows(row: Claimed) -> None:
    slots = Slots(4)
    slots.learn([1e-5] * 100)
    slots.weigh([row] * 4)
    assert slots.target == 19  # the other fields of the row take some characters
    assert slots.wanted(0) == 19
    assert slots.wanted(19) == 0


def test_the_size_of_a_batch_counts_not_that_of_its_largest_job() -> None:
    slots = Slots(4)
    slots.learn([1e-5] * 100)
    slots.weigh([claimed()] * 499 + [claimed(args="x" * 1_000_000)])
    assert slots.target == MOST


def test_however_large_the_jobs_are_each_slot_gets_one() -> None:
    slots = Slots(4)
    slots.learn([1e-5] * 100)
    slots.weigh([claimed(args="x" * HELD_CHARACTERS)])
    assert slots.target == 4


def test_the_size_rises_at_once_and_falls_gradually() -> None:
    slots = Slots(4)
    slots.learn([1e-5] * 100)
    slots.weigh([claimed()] * 10)
    slots.weigh([claimed(args="x" * (HELD_CHARACTERS // 100))])
    assert 95 < slots.target < 100
    slots.weigh([claimed()] * 10)
    assert 100 < slots.target < 200
    for _ in range(50):
        slots.weigh([claimed()] * 10)
    assert slots.target == MOST
