"""Percentiles from the histograms of ``JobStat`` in words."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from django.utils.translation import gettext as _

from ..figures.percentiles import SHARES, percentile
from ..models.stat import HISTOGRAM_BOUNDS
from . import display

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["SHARES", "percentile", "percentile_text"]


def percentile_text(histogram: Sequence[int], share: float) -> str:
    """Format the percentile in a suitable unit; empty if there were no jobs."""
    seconds = percentile(histogram, share)
    if seconds is None:
        return ""
    if math.isinf(seconds):
        return _("over %(period)s") % {"period": display.span(HISTOGRAM_BOUNDS[-1])}
    return display.span(seconds)
