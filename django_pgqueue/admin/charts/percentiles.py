"""Percentiles from the histograms of ``JobStat`` in words."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from django.utils.translation import gettext as _

from ...figures.percentiles import SHARES, percentile
from ...models.stat import HISTOGRAM_BOUNDS
from .. import display

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["SHARES", "pair_text", "percentile", "percentile_text"]


def percentile_text(histogram: Sequence[int], share: float) -> str:
    """Format the percentile in a suitable unit; empty if there were no jobs."""
    seconds = percentile(histogram, share)
    if seconds is None:
        return ""
    if math.isinf(seconds):
        return _("over %(period)s") % {"period": display.span(HISTOGRAM_BOUNDS[-1])}
    return display.span(seconds)


def pair_text(histogram: Sequence[int]) -> str:
    """Format the median and the 95th percentile. Neither of them breaks between its number and its unit."""
    texts = [percentile_text(histogram, share) or "-" for share in (0.5, 0.95)]
    return ", ".join(text.replace(" ", "\N{NO-BREAK SPACE}") for text in texts)
