"""The benchmark's rate of each tenth of a run."""

from __future__ import annotations

import pytest

from benchmarks.progress import LOOKS, Progress


def test_a_run_that_becomes_slower() -> None:
    progress = Progress()
    for count in range(1001):
        at = 10 + count * 0.01 if count <= 500 else 15 + (count - 500) * 0.02
        progress.saw(count, at, 1000)
    assert progress.tenths(10.0, 1000) == pytest.approx([100] * 5 + [50] * 5)


def test_one_look_is_enough() -> None:
    progress = Progress()
    progress.saw(0, 1.0, 30)
    progress.saw(30, 2.0, 30)
    assert progress.tenths(1.0, 30) == pytest.approx([30] * 10)


def test_the_last_job_counts_and_looks_close_to_each_other_do_not() -> None:
    jobs = 50 * LOOKS
    progress = Progress()
    for count in (10, 20, 30, jobs - 1, jobs):
        progress.saw(count, float(count), jobs)
    assert progress._counts == [10, jobs - 1, jobs]
