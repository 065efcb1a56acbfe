"""Figures as drawings: charts over a span, small lines, and bars."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal, TypeAlias

from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.translation import gettext as _, gettext_lazy, pgettext

from .. import formatting
from ..formatting import percent, throughput
from ..models.statistics import HISTOGRAM_BOUNDS
from ..monitoring.depth import DepthPoint, deploys
from ..monitoring.spans import DAY, HOUR, MONTH, WEEK, Figures, TimeSpan, between, percentile, percentile_text
from ..postgres.clock import server_now
from . import display
from .console import assets
from .display import Fact
from .lists import links, read_span, span_form

# A chart is a table of figures, folded below its title, so the figures can be read without JavaScript, with a
# screen reader, and copied. ``charts.js`` draws from the cells: each has its number in ``data-value`` and its
# text for the legend. Nothing else is sent, so no JSON and no inline script are needed.

Color: TypeAlias = Literal["main", "second", "third", "fourth", "fifth", "sixth", "alarm", "quiet"]
Stroke: TypeAlias = Literal["solid", "dashed", "dotted"]
#: What a page with charts needs, for ``console_page``.
MEDIA = assets("uplot/uPlot.min", "charts", scripts=("uplot/uPlot.iife.min", "charts"))


@dataclass(frozen=True, slots=True)
class Series:
    """One line or one kind of bars."""

    label: str
    values: Sequence[float | None]  # a number for each time of the chart; None where there is none
    texts: Sequence[str]  # the same in words
    color: Color = "main"
    stroke: Stroke = "solid"


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
    marks: Mapping[datetime, str] = field(default_factory=dict)
    """The versions that were deployed, each by one of the times."""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to draw."""
        return not any(value for series in self.series for value in series.values)

    @property
    def rows(self) -> Iterator[tuple[str, list[tuple[str, str]]]]:
        """Each time, newest first: its mark, then the time and its figures, as a number and in words."""
        for place, time in reversed(list(enumerate(self.times))):
            figures = [(series.values[place], series.texts[place]) for series in self.series]
            cells = [("" if value is None else f"{value:.6g}", text) for value, text in figures]
            yield self.marks.get(time, ""), [(f"{time.timestamp():.0f}", display.time(time)), *cells]

    @property
    def zone(self) -> str:
        """The time zone of its times."""
        return display.zone_name()


def with_deploys(counted: Sequence[DepthPoint], charts: Iterable[Chart]) -> list[Chart]:
    """Return the charts with the deploys that are known from the versions of workers (``depth_series``)."""
    marks = deploys(counted)
    return [replace(chart, marks=marks) for chart in charts]


def numbers(
    label: str, values: Sequence[float | None], color: Color = "main", stroke: Stroke = "solid"
) -> Series:
    """Return a series of counts or rates. Rates below ten have a digit after the point."""
    texts = [
        "" if value is None else formatting.number(value, 1 if value < 10 and value % 1 else 0)
        for value in values
    ]
    return Series(label, values, texts, color, stroke)


def span_charts(points: Sequence[Figures]) -> list[Chart]:
    """Return the charts of a task or a queue: attempts, and how long they waited and ran."""
    times = [point.start for point in points]
    counts = [
        numbers(pgettext("number of jobs", "done"), [point.done for point in points]),
        numbers(_("failed or retried"), [point.failed + point.retried for point in points], "alarm"),
    ]
    waited, ran = percentiles(points, "wait"), percentiles(points, "run")
    return [
        Chart("attempts", _("Attempts"), times, counts, kind="bars"),
        Chart("waited", _("Waited, from due to started"), times, waited, unit="seconds"),
        Chart("ran", _("Ran, from started to ended"), times, ran, unit="seconds"),
    ]


def depth_charts(counted: Sequence[DepthPoint], points: Sequence[Figures]) -> list[Chart]:
    """Return the charts of how many jobs waited and ran, and of how many arrived and ended a minute.

    ``points``: what ended in the same steps; some of the last ones may be missing. There are no charts if no
    worker has counted yet.
    """
    if all(point.ready is None for point in counted):
        return []
    states: list[tuple[str, str, Color, Stroke]] = [
        (pgettext("number of jobs", "ready"), "ready", "main", "solid"),
        (pgettext("number of jobs", "running"), "running", "second", "solid"),
        (pgettext("number of jobs", "blocked"), "blocked", "fourth", "dashed"),
        (pgettext("number of jobs", "retrying"), "retrying", "third", "dashed"),
        (pgettext("number of jobs", "scheduled"), "scheduled", "sixth", "dotted"),
    ]
    depth = [
        numbers(label, [getattr(point, name) for point in counted], color, stroke)
        for label, name, color, stroke in states
    ]
    pairs = list(zip(counted, counted[1:], points[1:], strict=False))
    ends = [60 * figures.ended / figures.seconds for _before, _now, figures in pairs]
    grown = [
        None if before.live is None or now.live is None
        else max(0.0, 60 * (now.live - before.live + figures.ended) / figures.seconds)
        for before, now, figures in pairs
    ]  # fmt: skip
    return [
        Chart("pgqueue-depth", _("Jobs that wait and run"), [point.start for point in counted], depth),
        Chart(
            "pgqueue-flow", _("Jobs that arrive and end, a minute"), [now.start for _, now, _ in pairs],
            [numbers(_("arrive"), grown, "second", "dashed"), numbers(_("end"), ends, "main", "solid")],
        ),
    ]  # fmt: skip


_STROKES: dict[float, Stroke] = {0.5: "solid", 0.95: "dashed", 0.99: "dotted"}


def percentiles(
    points: Sequence[Figures],
    what: Literal["wait", "run"],
    shares: Sequence[float] = (0.5, 0.95),
    label: str = "",
    colors: Sequence[Color] = ("main", "second"),
) -> list[Series]:
    """Return a line for each share: how long jobs waited, or ran. What is off the scale is at its end."""
    histograms: list[Sequence[int]] = [getattr(point, f"{what}_histogram") for point in points]
    lines = []
    for share, color in zip(shares, colors, strict=True):
        found = [percentile(histogram, share) for histogram in histograms]
        values = [None if value is None else min(value, HISTOGRAM_BOUNDS[-1]) for value in found]
        texts = [percentile_text(histogram, share) for histogram in histograms]
        name = f"{label} p{share * 100:.0f}".strip()
        lines.append(Series(name, values, texts, color, _STROKES[share]))
    return lines


def pair_text(histogram: Sequence[int]) -> str:
    """Format the median and the 95th percentile. Neither of them breaks between its number and its unit."""
    texts = [percentile_text(histogram, share) or "-" for share in (0.5, 0.95)]
    return ", ".join(text.replace(" ", "\N{NO-BREAK SPACE}") for text in texts)


def rate_facts(figures: Figures) -> list[Fact]:
    """Return what ran in the span, for the page of a task or a queue."""
    return [
        Fact(_("Rate"), throughput(figures.per_second)),
        Fact(_("Done"), formatting.number(figures.done)),
        Fact(_("Failed"), formatting.number(figures.failed)),
        Fact(_("Retried"), formatting.number(figures.retried)),
        Fact(pgettext("share of the attempts", "Errors"), share_text(error_rate(figures))),
        Fact(_("Waited p50, p95"), pair_text(figures.wait_histogram)),
        Fact(_("Ran p50, p95"), pair_text(figures.run_histogram)),
    ]


def error_rate(figures: Figures) -> float | None:
    """Return the share of the attempts that raised, whether they are tried again or not."""
    ended = figures.done + figures.failed + figures.retried
    return (figures.failed + figures.retried) / ended if ended else None


def share_text(share: float | None) -> str:
    """Format a share of errors; empty if no attempt has ended."""
    return "" if share is None else percent(share, 1)


_LABELS = {
    HOUR.name: gettext_lazy("1 hour"),
    DAY.name: gettext_lazy("24 hours"),
    WEEK.name: gettext_lazy("7 days"),
    MONTH.name: gettext_lazy("30 days"),
}
_SPANS = {span.name: span for span in (HOUR, DAY, WEEK)}


def chosen_span(
    request: HttpRequest, alias: str, spans: Mapping[str, TimeSpan] = _SPANS, default: TimeSpan = HOUR
) -> TimeSpan:
    """Return the span of the address; the default if there is none, or one that does not exist. It may go
    from one time to another (``span_filter``).
    """
    text = _span_text(request)
    if found := read_span(text):
        now = server_now(alias)
        end = min(found.end or now, now)
        start = found.start or end - MONTH.length
        if start < end:
            return between(text, start, end, now)
    return spans.get(text, default)


def _span_text(request: HttpRequest) -> str:
    """Return the span of the address, as it is, or of the fields of the form."""
    start, end = (request.GET.get(f"span_{part}", "") for part in ("from", "to"))
    return request.GET.get("span", "") or (f"{start}..{end}" if start or end else "")


def span_filter(
    request: HttpRequest, spans: Mapping[str, TimeSpan] = _SPANS, default: TimeSpan = HOUR
) -> dict[str, Any]:
    """Return a filter for ``filtered.html``, or ``span_tabs.html`` on a page without filters: links, which
    keep the rest of the address, and a form for a span from one time to another.
    """
    tabs = links(request, "span", {name: _LABELS[name] for name in spans}, default.name)
    if read_span(_span_text(request)):
        tabs = [{**tab, "selected": False} for tab in tabs]
    note = _(
        "Quarters of an hour are counted in the last two days, hours in the last month, and days before."
    )
    form = span_form(request, "span", _span_text(request))
    return {"title": _("time"), "choices": tabs, "span": {**form, "note": note}}


# Small drawings beside a number, made by the server as SVG. They have neither axes nor figures, so screen
# readers skip them: the number and the chart say more.

WIDTH, HEIGHT = 120, 28
_EDGE = 1.5  # so that the stroke is not cut off


def sparkline(values: Sequence[float | None], color: Color = "main") -> str:
    """Return a line from the oldest to the newest value, from zero up, of two or more. None counts as 0."""
    numbers = [value or 0.0 for value in values]
    if len(numbers) < 2:
        return ""
    most = max(numbers) or 1.0
    step, room = WIDTH / (len(numbers) - 1), HEIGHT - 2 * _EDGE
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


def gauge(share: float, *, alarm: bool = False) -> str:
    """Return a bar for a share from 0 to 1; more than that is a full bar."""
    return format_html(
        '<svg class="pgqueue-gauge{}" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true"'
        ' focusable="false"><rect class="pgqueue-gauge-all" width="100" height="8"/>'
        '<rect class="pgqueue-gauge-used" width="{}" height="8"/></svg>',
        " pgqueue-gauge-alarm" if alarm else "",
        round(100 * min(max(share, 0.0), 1.0)),
    )
