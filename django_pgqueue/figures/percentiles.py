"""Percentiles from the histograms of ``JobStat``."""

from __future__ import annotations

import math
from itertools import accumulate
from typing import TYPE_CHECKING

from ..models.stat import HISTOGRAM_BOUNDS

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["SHARES", "percentile"]

SHARES = (0.5, 0.95, 0.99)


def percentile(histogram: Sequence[int], share: float) -> float | None:
    """Return the time in seconds that this share of the jobs did not exceed; None if there were no jobs.

    The jobs are assumed to be spread evenly within a class of the histogram. Each bound is twice the previous
    one, so the result is between half and twice the true value. In the first class, up to one millisecond,
    the error is at most one millisecond. The class after the last bound returns infinity.
    """
    total = sum(histogram)
    if not total:
        return None
    rank = share * total
    below = 0
    for place, (count, up_to) in enumerate(zip(histogram, accumulate(histogram), strict=True)):
        if count and up_to >= rank:
            if place >= len(HISTOGRAM_BOUNDS):
                break
            upper: float = HISTOGRAM_BOUNDS[place]
            lower: float = HISTOGRAM_BOUNDS[place - 1] if place else 0.0
            return lower + (upper - lower) * (rank - below) / count
        below = up_to
    return math.inf
