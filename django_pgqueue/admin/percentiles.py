"""Percentiles from the histograms of ``JobStat``, as numbers and in words."""

from __future__ import annotations

import math
from itertools import accumulate
from typing import TYPE_CHECKING

from django.utils.translation import gettext as _

from ..models.stat import HISTOGRAM_BOUNDS
from . import display

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["SHARES", "percentile", "percentile_text"]

SHARES = (0.5, 0.95, 0.99)


def percentile(histogram: Sequence[int], share: float) -> float | None:
    """The time in seconds that this share of the jobs did not exceed; None if there were no jobs.

    Within a class of the histogram the jobs are taken to be spread evenly. As each bound is twice the one
    before it, the answer is at most twice and at least half of the true value; in the first class, up to one
    millisecond, it is off by one millisecond at most. Infinity stands for the class after the last bound.
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


def percentile_text(histogram: Sequence[int], share: float) -> str:
    """The percentile in the unit that suits it; empty if there were no jobs."""
    seconds = percentile(histogram, share)
    if seconds is None:
        return ""
    if math.isinf(seconds):
        return _("over %(period)s") % {"period": display.span(HISTOGRAM_BOUNDS[-1])}
    return display.span(seconds)
