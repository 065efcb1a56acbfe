"""Percentiles from histograms, against values that are known."""

from __future__ import annotations

import math
import random
from bisect import bisect_left

import pytest

from django_pgqueue.models.statistics import HISTOGRAM_BOUNDS
from django_pgqueue.monitoring.spans import percentile, percentile_text


def histogram(times: list[float]) -> list[int]:
    """As a worker counts (``worker.producer.reporter.Accounts``)."""
    classes = [0] * (len(HISTOGRAM_BOUNDS) + 1)
    for time in times:
        classes[bisect_left(HISTOGRAM_BOUNDS, time)] += 1
    return classes


def test_times_that_are_spread_evenly_in_their_class_are_met_exactly() -> None:
    lower, upper = HISTOGRAM_BOUNDS[9:11]
    times = [lower + (upper - lower) * (n + 1) / 1000 for n in range(1000)]
    for share in (0.5, 0.95, 0.99):
        assert percentile(histogram(times), share) == pytest.approx(times[round(share * 1000) - 1])


@pytest.mark.parametrize("share", [0.5, 0.95, 0.99])
def test_any_times_are_met_within_the_class(share: float) -> None:
    times = sorted(random.Random(7).lognormvariate(-2, 2) for _ in range(5000))
    true = times[math.ceil(share * len(times)) - 1]
    found = percentile(histogram(times), share)
    assert found is not None
    assert bisect_left(HISTOGRAM_BOUNDS, found) == bisect_left(HISTOGRAM_BOUNDS, true)
    assert true / 2 <= found <= true * 2


def test_the_ends_of_a_histogram() -> None:
    assert percentile([], 0.5) is None
    assert percentile(histogram([]), 0.5) is None
    assert percentile(histogram([0.0]), 0.99) == pytest.approx(0.00099)
    assert percentile(histogram([0.5, 1e6]), 0.5) == 0.512
    assert percentile(histogram([0.5, 1e6]), 0.99) == math.inf
    assert percentile_text(histogram([]), 0.5) == ""
    assert percentile_text(histogram([1e6]), 0.5) == "over 1 h 9 min"
    assert percentile_text(histogram([0.5] * 100), 1) == "512 ms"
