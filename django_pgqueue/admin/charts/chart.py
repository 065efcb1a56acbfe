"""Charts: a table of figures from which a script draws.

The page has the table, folded below the title of the chart. So the figures can be read without JavaScript,
with a screen reader, and copied. ``charts.js`` draws from the cells: each has its number in ``data-value``
and its text for the legend. Nothing else is sent, so no JSON and no inline script are needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from django.forms import Media, Script
from django.utils.translation import gettext as _

from .. import display

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["MEDIA", "Chart", "Series"]

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
