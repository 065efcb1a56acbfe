"""What ran in a span of time: point by point for a chart, or by queue or task for a table.

Both are read from sums that are as long as the span allows, and from the minutes that are not in these yet.
Only the chart of an hour of a single task is read from its minutes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from django.db import connections

from ..models import stat
from ..models.stat import HISTOGRAM_BOUNDS
from ..time_limit import time_limit
from .percentiles import percentile

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["DAY", "HOUR", "MONTH", "SPANS", "WEEK", "Figures", "Span", "breakdown", "series"]


@dataclass(frozen=True, slots=True)
class Span:
    """How far back to look."""

    name: str
    length: timedelta
    step: timedelta
    """The distance of the points of a chart."""
    chart: stat.Span
    """The sums that a chart adds up."""
    grain: timedelta
    """A table begins at a multiple of this, so it may begin a little earlier."""
    table: stat.Span
    """The sums that a table adds up."""


_MINUTE, _QUARTER, _HOUR, _DAY = (
    timedelta(minutes=1),
    timedelta(minutes=15),
    timedelta(hours=1),
    timedelta(days=1),
)
_SUMS = stat.Span
HOUR = Span("1h", _HOUR, _MINUTE, _SUMS.MINUTE, _QUARTER, _SUMS.QUARTER)
DAY = Span("24h", _DAY, _QUARTER, _SUMS.QUARTER, _HOUR, _SUMS.HOUR)
WEEK = Span("7d", 7 * _DAY, _HOUR, _SUMS.HOUR, _DAY, _SUMS.DAY)
MONTH = Span("30d", 30 * _DAY, 6 * _HOUR, _SUMS.HOUR, _DAY, _SUMS.DAY)
SPANS = {span.name: span for span in (HOUR, DAY, WEEK, MONTH)}

PATIENCE = 5.0  # seconds that the statement may take
_FOLDER = Path(__file__).parent
_CLASSES = range(1, len(HISTOGRAM_BOUNDS) + 2)


def _sql(name: str) -> str:
    """Return a statement. It sums each class of the histograms by itself: this is much faster than to turn
    the arrays into rows.
    """
    sums = {
        f"{column}_sums": ", ".join(f"coalesce(sum(part.{column}[{n}]), 0)::bigint" for n in _CLASSES)
        for column in ("wait_histogram", "run_histogram")
    }
    parts, statement = ((_FOLDER / f"{each}.sql").read_text(encoding="utf-8") for each in ("parts", name))
    return parts + statement.format(**sums)


_SERIES, _BREAKDOWN = _sql("series"), _sql("breakdown")


@dataclass(slots=True)
class Figures:
    """The attempts that were claimed in a span. An attempt is counted when it is over."""

    start: datetime
    """When the point begins; for a table, when the span begins."""
    queue_name: str = ""
    task_path: str = ""
    done: int = 0
    failed: int = 0
    """Attempts after which the job failed."""
    retried: int = 0
    """Attempts that failed and are tried again."""
    cancelled: int = 0
    wait_seconds: float = 0.0
    run_seconds: float = 0.0
    wait_histogram: Sequence[int] = field(default_factory=list)
    run_histogram: Sequence[int] = field(default_factory=list)
    seconds: float = 0.0
    """How long the point or the span has lasted so far."""

    @property
    def attempts(self) -> int:
        """How many there were."""
        return self.done + self.failed + self.retried + self.cancelled

    def waited(self, share: float) -> float | None:
        """The seconds from due to started that this share of the attempts did not exceed, if any."""
        return percentile(self.wait_histogram, share)

    def ran(self, share: float) -> float | None:
        """The seconds from started to ended that this share of the attempts did not exceed."""
        return percentile(self.run_histogram, share)


def series(alias: str, span: Span, *, queue: str = "", task: str = "") -> list[Figures]:
    """Return the points of a chart, oldest first, of all jobs or those of one queue or task.

    There is a point for each step, also if nothing ran. The last one is not over yet. Raises
    ``TimeLimitReached``.
    """
    # Single minutes of a task have no sums.
    source = "" if task and span.chart == stat.Span.MINUTE else span.chart.value
    which = {"queue": queue, "task": task, "of_task": bool(task)}
    back = span.length - span.step
    return _read(alias, _SERIES, {"back": back, "step": span.step, "source": source, **which})


def breakdown(
    alias: str,
    span: Span,
    by: Literal["queue", "task"],
    *,
    queue: str = "",
    task: str = "",
    most: int = 100,
) -> list[Figures]:
    """Return the figures of the whole span for each queue or task, those with the most attempts first.

    Raises ``TimeLimitReached``.
    """
    which = {"queue": queue, "task": task, "of_task": by == "task" or bool(task), "by": by, "most": most}
    parts = {"back": span.length, "step": span.grain, "source": span.table.value}
    return _read(alias, _BREAKDOWN, {**parts, **which})


def _read(alias: str, statement: str, parameters: dict[str, Any]) -> list[Figures]:
    with time_limit(alias, PATIENCE), connections[alias].cursor() as cursor:
        cursor.execute(statement, parameters)
        return [Figures(*row) for row in cursor.fetchall()]
