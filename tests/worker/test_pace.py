"""How many jobs to take: as many as can start soon, in large batches when they are quick."""

from __future__ import annotations

import pytest

from django_pgqueue.worker.producer.batch_size import AHEAD, BATCH, MOST, Pace


def test_before_anything_is_known_only_the_slots_are_filled() -> None:
    pace = Pace(4)
    assert pace.target == 4
    assert pace.wanted(0, running_low=True) == 4


def test_slow_jobs_are_never_taken_ahead() -> None:
    pace = Pace(4)
    pace.learn([10.0])
    assert pace.wanted(0, running_low=True) == 4
    assert pace.wanted(3, running_low=True) == 1
    assert pace.wanted(4, running_low=False) == 0


def test_quick_jobs_come_in_large_batches() -> None:
    pace = Pace(4)
    pace.learn([1e-5] * 100)
    assert pace.target == MOST
    assert pace.wanted(0, running_low=True) == BATCH


def test_what_is_ahead_takes_fifty_milliseconds() -> None:
    pace = Pace(2)
    pace.learn([0.01])
    assert pace.target == 2 + 2 * AHEAD / 0.01


def test_it_waits_until_half_is_gone() -> None:
    pace = Pace(2)
    pace.learn([0.001])
    assert pace.target == 102
    assert pace.wanted(60, running_low=False) == 0
    assert pace.wanted(60, running_low=True) == 42
    assert pace.wanted(40, running_low=False) == 62
    assert pace.wanted(102, running_low=True) == 0
    assert pace.wanted(200, running_low=True) == 0


def test_slower_counts_at_once_faster_by_and_by() -> None:
    pace = Pace(1)
    pace.learn([0.001])
    assert pace.job_seconds == pytest.approx(0.001)
    pace.learn([1.0])
    assert pace.job_seconds == pytest.approx(1.0)
    pace.learn([0.001])
    assert 0.5 < pace.job_seconds < 1.0
    for _ in range(50):
        pace.learn([0.001])
    assert pace.job_seconds == pytest.approx(0.001, rel=0.01)


def test_it_learns_nothing_from_nothing() -> None:
    pace = Pace(1)
    before = pace.job_seconds
    pace.learn([])
    assert pace.job_seconds == before
    pace.learn([0.0])
    assert pace.target == MOST


def test_more_slots_than_the_most_are_filled_all_the_same() -> None:
    pace = Pace(5_000)
    pace.learn([1e-6])
    assert pace.target == 5_000
    assert pace.wanted(0, running_low=True) == 5_000
