"""How many jobs to claim: as many as can start soon, in large batches if they are fast and
small.
"""

from __future__ import annotations

import pytest

from django_pgqueue.jobs.claim import BATCH, Claimed
from django_pgqueue.worker.producer.demand import AHEAD, HELD_CHARACTERS, MOST, BatchSize
from tests.support.rows import claimed


def test_before_anything_is_known_only_the_slots_are_filled() -> None:
    batch_size = BatchSize(4)
    assert batch_size.target == 4
    assert batch_size.wanted(0, running_low=True) == 4


def test_slow_jobs_are_never_taken_ahead() -> None:
    batch_size = BatchSize(4)
    batch_size.learn([10.0])
    assert batch_size.wanted(0, running_low=True) == 4
    assert batch_size.wanted(3, running_low=True) == 1
    assert batch_size.wanted(4, running_low=False) == 0


def test_quick_jobs_come_in_large_batches() -> None:
    batch_size = BatchSize(4)
    batch_size.learn([1e-5] * 100)
    assert batch_size.target == MOST
    assert batch_size.wanted(0, running_low=True) == BATCH


def test_what_is_ahead_takes_fifty_milliseconds() -> None:
    batch_size = BatchSize(2)
    batch_size.learn([0.01])
    assert batch_size.target == 2 + 2 * AHEAD / 0.01


def test_it_waits_until_half_is_gone() -> None:
    batch_size = BatchSize(2)
    batch_size.learn([0.001])
    assert batch_size.target == 102
    assert batch_size.wanted(60, running_low=False) == 0
    assert batch_size.wanted(60, running_low=True) == 42
    assert batch_size.wanted(40, running_low=False) == 62
    assert batch_size.wanted(102, running_low=True) == 0
    assert batch_size.wanted(200, running_low=True) == 0


def test_jobs_that_run_do_not_count_as_held_ahead() -> None:
    batch_size = BatchSize(200)
    batch_size.learn([0.01])
    assert batch_size.target == MOST
    assert batch_size.wanted(601, running_low=False) == 0
    assert batch_size.wanted(600, running_low=False) == 400


def test_slower_counts_at_once_faster_by_and_by() -> None:
    batch_size = BatchSize(1)
    batch_size.learn([0.001])
    assert batch_size.job_seconds == pytest.approx(0.001)
    batch_size.learn([1.0])
    assert batch_size.job_seconds == pytest.approx(1.0)
    batch_size.learn([0.001])
    assert 0.5 < batch_size.job_seconds < 1.0
    for _ in range(50):
        batch_size.learn([0.001])
    assert batch_size.job_seconds == pytest.approx(0.001, rel=0.01)


def test_it_learns_nothing_from_nothing() -> None:
    batch_size = BatchSize(1)
    before = batch_size.job_seconds
    batch_size.learn([])
    assert batch_size.job_seconds == before
    batch_size.learn([0.0])
    assert batch_size.target == MOST


def test_more_slots_than_the_most_are_filled_all_the_same() -> None:
    batch_size = BatchSize(5_000)
    batch_size.learn([1e-6])
    assert batch_size.target == 5_000
    assert batch_size.wanted(0, running_low=True) == 5_000


LARGE = "x" * (HELD_CHARACTERS // 20)


@pytest.mark.parametrize(
    "row",
    [claimed(args=LARGE), claimed(kwargs=LARGE), claimed(metadata=LARGE), claimed(errors=LARGE)],
    ids=["args", "kwargs", "metadata", "errors"],
)
def test_of_large_jobs_only_as_many_are_held_as_memory_allows(row: Claimed) -> None:
    batch_size = BatchSize(4)
    batch_size.learn([1e-5] * 100)
    batch_size.weigh([row] * 4)
    assert batch_size.target == 19  # the other fields of the row take some characters
    assert batch_size.wanted(0, running_low=True) == 19
    assert batch_size.wanted(19, running_low=True) == 0


def test_the_size_of_a_batch_counts_not_that_of_its_largest_job() -> None:
    batch_size = BatchSize(4)
    batch_size.learn([1e-5] * 100)
    batch_size.weigh([claimed()] * 499 + [claimed(args="x" * 1_000_000)])
    assert batch_size.target == MOST


def test_however_large_the_jobs_are_each_slot_gets_one() -> None:
    batch_size = BatchSize(4)
    batch_size.learn([1e-5] * 100)
    batch_size.weigh([claimed(args="x" * HELD_CHARACTERS)])
    assert batch_size.target == 4


def test_the_size_rises_at_once_and_falls_gradually() -> None:
    batch_size = BatchSize(4)
    batch_size.learn([1e-5] * 100)
    batch_size.weigh([claimed()] * 10)
    batch_size.weigh([claimed(args="x" * (HELD_CHARACTERS // 100))])
    assert 95 < batch_size.target < 100
    batch_size.weigh([claimed()] * 10)
    assert 100 < batch_size.target < 200
    for _ in range(50):
        batch_size.weigh([claimed()] * 10)
    assert batch_size.target == MOST
