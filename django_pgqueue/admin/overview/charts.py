"""The two charts of the overview: what ran and failed, and how long jobs waited and ran."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from django.utils.formats import number_format
from django.utils.translation import gettext as _
from django.utils.translation import pgettext

from ...figures.percentiles import SHARES
from ...figures.spans import series
from ...models.stat import HISTOGRAM_BOUNDS
from ..charts.chart import Chart, Series
from ..charts.percentiles import percentile, percentile_text

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Literal

    from ...figures.spans import Figures, Span

__all__ = ["charts"]

_SOON = 30  # seconds; workers write their figures every ten seconds
_STROKES: tuple[Literal["solid", "dashed", "dotted"], ...] = ("solid", "dashed", "dotted")


def charts(alias: str, span: Span) -> list[Chart]:
    """Return the charts of a span. Raises ``TimeLimitReached``."""
    points = [point for point in series(alias, span) if point.seconds >= _SOON]
    return [throughput(points), times(points)]


def throughput(points: Sequence[Figures]) -> Chart:
    """Return how many attempts have ended a minute. The last point is not over."""

    def of(label: str, counts: list[int], color: Literal["main", "alarm", "quiet"]) -> Series:
        rates = [60 * count / point.seconds for count, point in zip(counts, points, strict=True)]
        return Series(label, rates, [_rate(rate) for rate in rates], color)

    failed = of(pgettext("number of jobs", "failed"), [point.failed for point in points], "alarm")
    retried = of(pgettext("number of jobs", "retried"), [point.retried for point in points], "quiet")
    done = of(pgettext("number of jobs", "done"), [point.done for point in points], "main")
    starts = [point.start for point in points]
    return Chart("pgqueue-throughput", _("Attempts a minute"), starts, [failed, retried, done], kind="bars")


def times(points: Sequence[Figures]) -> Chart:
    """Return percentiles of how long jobs waited and ran."""
    found = []
    for label, color, histograms in (
        (_("waited"), "second", [point.wait_histogram for point in points]),
        (_("ran"), "main", [point.run_histogram for point in points]),
    ):
        for share, stroke in zip(SHARES, _STROKES, strict=True):
            found.append(
                Series(
                    f"{label} p{share * 100:.0f}",
                    [_seconds(percentile(histogram, share)) for histogram in histograms],
                    [percentile_text(histogram, share) for histogram in histograms],
                    color,  # type: ignore[arg-type]
                    stroke,
                )
            )
    starts = [point.start for point in points]
    return Chart("pgqueue-times", _("How long jobs waited and ran"), starts, found, unit="seconds")


def _seconds(found: float | None) -> float | None:
    return HISTOGRAM_BOUNDS[-1] if found is not None and math.isinf(found) else found


def _rate(rate: float) -> str:
    digits = 1 if rate < 10 and not float(rate).is_integer() else 0
    return number_format(round(rate, digits), digits, use_l10n=True, force_grouping=True)
