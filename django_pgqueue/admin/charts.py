"""Figures as drawings: charts over a span, small lines, and bars."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from django.forms import Media, Script
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, pgettext

from ..models.stat import HISTOGRAM_BOUNDS
from ..monitoring.spans import DAY, HOUR, MONTH, SHARES, WEEK, Span, percentile
from . import display

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django.http import HttpRequest

    from ..monitoring.spans import Figures

__all__ = [
    "LABELS",
    "MEDIA",
    "SHARES",
    "Chart",
    "Series",
    "SpanTab",
    "address",
    "chosen_span",
    "gauge",
    "pair_text",
    "percentile",
    "percentile_text",
    "span_charts",
    "span_tabs",
    "sparkline",
]


# ----------------------------------------------------------------------------
# Charts: a table of figures from which a script draws.
#
# The page has the table, folded below the title of the chart. So the figures can be read without JavaScript,
# with a screen reader, and copied. ``charts.js`` draws from the cells: each has its number in ``data-value``
# and its text for the legend. Nothing else is sent, so no JSON and no inline script are needed.

Number = float | None
_SCRIPTS: list[Any] = [  # the stubs know only texts
    Script(f"django_pgqueue/{name}.js", defer=True) for name in ("uplot/uPlot.iife.min", "charts")
]
#: What a page with charts needs, for ``console_page``.
MEDIA = Media(css={"all": ["django_pgqueue/uplot/uPlot.min.css", "django_pgqueue/charts.css"]}, js=_SCRIPTS)


@dataclass(frozen=True, slots=True)
class Series:
    """One line or one kind of bars."""

    label: str
    values: Sequence[Number]
    """A number for each time of the chart; None where there is none."""
    texts: Sequence[str]
    """The same in words."""
    color: Literal["main", "second", "alarm", "quiet"] = "main"
    stroke: Literal["solid", "dashed", "dotted"] = "solid"


@dataclass(frozen=True, slots=True)
class Cell:
    """A time or a figure, for the template."""

    value: str
    text: str


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart over time. ``id`` is unique on the page."""

    id: str
    title: str
    times: Sequence[datetime]
    series: Sequence[Series]
    kind: Literal["lines", "bars"] = "lines"
    """The bars of one time are stacked, the first series at the bottom."""
    unit: Literal["number", "seconds"] = "number"
    """Seconds have a logarithmic scale, since jobs take from milliseconds to hours."""
    note: str = ""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to draw."""
        return not any(value for series in self.series for value in series.values)

    @property
    def rows(self) -> Iterator[tuple[Cell, list[Cell]]]:
        """Each time, newest first, and its figures."""
        for place in reversed(range(len(self.times))):
            time = self.times[place]
            cells = [
                Cell("" if (value := series.values[place]) is None else f"{value:.6g}", series.texts[place])
                for series in self.series
            ]
            yield Cell(f"{time.timestamp():.0f}", display.time(time)), cells

    @property
    def zone(self) -> str:
        """The time zone of its times."""
        return display.zone_name()

    @property
    def empty_text(self) -> str:
        """What is shown instead of an empty chart."""
        return _("No attempts have ended in this time.")


# ----------------------------------------------------------------------------
# The charts of a task or a queue over a span: attempts, and percentiles of waiting and running times.

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


# ----------------------------------------------------------------------------
# The choice of a span in the address of a page, and the links to the same page with another one.

SPAN_VAR = "span"
#: The names of all spans. Failures are the only ones that are kept for a month.
LABELS = {
    HOUR.name: gettext_lazy("1 hour"),
    DAY.name: gettext_lazy("24 hours"),
    WEEK.name: gettext_lazy("7 days"),
    MONTH.name: gettext_lazy("30 days"),
}
_SPANS = {span.name: span for span in (HOUR, DAY, WEEK)}


@dataclass(frozen=True, slots=True)
class SpanTab:
    """A link to the page with one span."""

    label: str
    url: str
    is_chosen: bool


def chosen_span(request: HttpRequest) -> Span:
    """Return the span of the address; the hour if there is none, or one that does not exist."""
    return _SPANS.get(request.GET.get(SPAN_VAR, ""), HOUR)


def span_tabs(request: HttpRequest) -> list[SpanTab]:
    """Return the links, which keep the rest of the address."""
    chosen = chosen_span(request)
    return [
        SpanTab(str(LABELS[name]), address(request, {SPAN_VAR: name, "p": None}), name == chosen.name)
        for name in _SPANS
    ]


def address(request: HttpRequest, changes: dict[str, Any]) -> str:
    """Return the query string of the page with changes; None removes a parameter."""
    query = request.GET.copy()
    for name, value in changes.items():
        query.pop(name, None)
        if value is not None:
            query[name] = value
    return f"?{query.urlencode()}"


# ----------------------------------------------------------------------------
# Small lines beside a number that show how it was before, drawn by the server as SVG.
#
# They have neither axes nor figures, so they are hidden from screen readers: the number and the chart say
# more.

WIDTH, HEIGHT = 120, 28
_EDGE = 1.5  # so that the stroke is not cut off


def sparkline(values: Sequence[float | None], color: str = "main") -> str:
    """Return a line from the oldest value to the newest, from zero up; empty for fewer than two values.

    None counts as zero. ``color`` is one of those of a ``Series``.
    """
    numbers = [value or 0.0 for value in values]
    if len(numbers) < 2:
        return ""
    most = max(numbers) or 1.0
    step = WIDTH / (len(numbers) - 1)
    room = HEIGHT - 2 * _EDGE
    line = " ".join(
        f"{place * step:.1f},{HEIGHT - _EDGE - room * number / most:.1f}"
        for place, number in enumerate(numbers)
    )
    return format_html(
        '<svg class="pgqueue-spark pgqueue-series-{}" viewBox="0 0 {} {}" preserveAspectRatio="none"'
        ' aria-hidden="true" focusable="false">'
        '<polygon points="0,{} {} {},{}"/><polyline points="{}"/></svg>',
        color, WIDTH, HEIGHT, HEIGHT, line, WIDTH, HEIGHT, line,
    )  # fmt: skip


# ----------------------------------------------------------------------------
# A bar that shows how much of something is used, drawn by the server as SVG. The number is always beside it,
# so screen readers skip the bar.


def gauge(share: float, *, alarm: bool = False) -> str:
    """Return the bar for a share from 0 to 1; more than that is a full bar."""
    width = round(100 * min(max(share, 0.0), 1.0))
    return format_html(
        '<svg class="pgqueue-gauge{}" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true"'
        ' focusable="false"><rect class="pgqueue-gauge-all" width="100" height="8"/>'
        '<rect class="pgqueue-gauge-used" width="{}" height="8"/></svg>',
        " pgqueue-gauge-alarm" if alarm else "",
        width,
    )


# ----------------------------------------------------------------------------
# Percentiles from the histograms of ``JobStat`` in words.


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
