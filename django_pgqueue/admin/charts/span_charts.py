"""The charts of a task or a queue over a span: attempts, and percentiles of waiting and running times."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.utils.translation import gettext as _
from django.utils.translation import pgettext

from .. import display
from .chart import Chart, Series
from .percentiles import percentile_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...figures.spans import Figures

__all__ = ["span_charts"]

_LINES = ((0.5, "main", "solid"), (0.95, "second", "dashed"))


def span_charts(points: Sequence[Figures]) -> list[Chart]:
    """Return the charts of these points."""
    times = [point.start for point in points]
    attempts = Chart("attempts", _("Attempts"), times, [
        _counts(pgettext("number of jobs", "done"), [point.done for point in points]),
        Series(_("failed or retried"), failed := [float(point.failed + point.retried) for point in points],
               [display.number(int(count)) for count in failed], "alarm"),
    ], kind="bars")  # fmt: skip
    waited = [point.wait_histogram for point in points]
    ran = [point.run_histogram for point in points]
    return [
        attempts,
        Chart(
            "waited",
            _("Waited, from due to started"),
            times,
            _percentiles(points, waited, "waited"),
            unit="seconds",
        ),
        Chart(
            "ran", _("Ran, from started to ended"), times, _percentiles(points, ran, "ran"), unit="seconds"
        ),
    ]


def _counts(label: str, counts: list[int]) -> Series:
    return Series(label, [float(count) for count in counts], [display.number(count) for count in counts])


def _percentiles(points: Sequence[Figures], histograms: list[Sequence[int]], name: str) -> list[Series]:
    return [
        Series(
            f"p{round(100 * share)}",
            [getattr(point, name)(share) for point in points],
            [percentile_text(histogram, share) for histogram in histograms],
            color,  # type: ignore[arg-type]
            stroke,  # type: ignore[arg-type]
        )
        for share, color, stroke in _LINES
    ]
