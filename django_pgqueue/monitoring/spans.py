"""What ran in a span of time: point by point for a chart, or by queue or task for a table.

Both are read from sums that are as long as the span allows, and from the minutes that are not in these yet.
Only the chart of an hour of a single task is read from its minutes.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import accumulate
from typing import Any, Literal, TypeAlias

from django.utils.translation import gettext as _

from ..formatting import span as duration_text
from ..models.statistics import HISTOGRAM_BOUNDS, StatSpan
from ..postgres import fetch_rows, sql_of
from ..postgres.timeout import rows_within


@dataclass(frozen=True, slots=True)
class TimeSpan:
    """How far back to look, and which sums are added up: for a ``chart``, points with a distance of
    ``step``, or for a ``table``, which begins at a multiple of ``grain``, so maybe a little earlier.
    """

    name: str
    length: timedelta
    step: timedelta
    chart: StatSpan
    grain: timedelta
    table: StatSpan
    end: datetime | str = "infinity"  # in the future: now

    @property
    def back(self) -> timedelta:
        """How far before its end the first step of a chart is: the step that goes on now is one of them."""
        return self.length if isinstance(self.end, datetime) else self.length - self.step


_MINUTE, _QUARTER, _HOUR, _DAY = (timedelta(minutes=minutes) for minutes in (1, 15, 60, 24 * 60))
HOUR = TimeSpan("1h", _HOUR, _MINUTE, StatSpan.MINUTE, _QUARTER, StatSpan.QUARTER)
DAY = TimeSpan("24h", _DAY, _QUARTER, StatSpan.QUARTER, _HOUR, StatSpan.HOUR)
WEEK = TimeSpan("7d", 7 * _DAY, _HOUR, StatSpan.HOUR, _DAY, StatSpan.DAY)
MONTH = TimeSpan("30d", 30 * _DAY, 6 * _HOUR, StatSpan.HOUR, _DAY, StatSpan.DAY)
SPANS = {span.name: span for span in (HOUR, DAY, WEEK, MONTH)}

_MOST_POINTS = 96
#: How far back the sums of each length are kept, less an hour (_pgqueue_stats_upkeep).
_KEPT = ((timedelta(hours=47), _QUARTER, StatSpan.QUARTER), (timedelta(days=31), _HOUR, StatSpan.HOUR))


def between(name: str, start: datetime, end: datetime, now: datetime) -> TimeSpan:
    """Return the span from one time to another, up to now, counted in whole quarters of an hour, hours or
    days: the shortest sums that are kept since its start.
    """
    whole = ((grain, source) for kept, grain, source in _KEPT if now - start <= kept)
    grain, source = next(whole, (_DAY, StatSpan.DAY))
    step = grain * max(1, math.ceil((end - start) / grain / _MOST_POINTS))
    seconds = grain.total_seconds()
    end = datetime.fromtimestamp(math.ceil(end.timestamp() / seconds) * seconds, end.tzinfo)
    return TimeSpan(name, min(end, now) - start, step, source, grain, source, end)


By: TypeAlias = Literal["queue", "task"]
SPAN_TIMEOUT = 5.0  # seconds that the statement may take
_CLASSES = range(1, len(HISTOGRAM_BOUNDS) + 2)


def span_sql(*names: str) -> str:
    """Return a statement. To sum each class of a histogram is much faster than to turn arrays into rows."""
    sums = {
        f"{column}_sums": ", ".join(f"coalesce(sum(part.{column}[{n}]), 0)::bigint" for n in _CLASSES)
        for column in ("wait_histogram", "run_histogram")
    }
    return sql_of(__file__, *names).format(**sums)


_SERIES, _BREAKDOWN, _TRENDS = (span_sql("parts", name) for name in ("series", "breakdown", "trends"))
_TOTALS = span_sql("totals")


@dataclass(slots=True)
class Figures:
    """The attempts that were claimed in a span. An attempt is counted when it has ended."""

    start: datetime  # when the point begins; for a table, when the span begins
    queue_name: str = ""
    task_path: str = ""
    done: int = 0
    failed: int = 0  # attempts after which the job failed
    retried: int = 0  # attempts that failed and are tried again
    cancelled: int = 0
    wait_seconds: float = 0.0
    run_seconds: float = 0.0
    wait_histogram: Sequence[int] = field(default_factory=list)
    run_histogram: Sequence[int] = field(default_factory=list)
    seconds: float = 0.0  # how long the point or the span has lasted so far

    @property
    def attempts(self) -> int:
        """How many there were."""
        return self.done + self.failed + self.retried + self.cancelled

    @property
    def ended(self) -> int:
        """How many jobs ended: all attempts but retried ones."""
        return self.done + self.failed + self.cancelled

    @property
    def per_second(self) -> float:
        """How many ended a second."""
        return per_second([self])

    def waited(self, share: float) -> float | None:
        """The seconds from due to started that this share of the attempts did not exceed, if any."""
        return percentile(self.wait_histogram, share)

    def ran(self, share: float) -> float | None:
        """The seconds from started to ended that this share of the attempts did not exceed."""
        return percentile(self.run_histogram, share)


def series(alias: str, span: TimeSpan, *, queue: str = "", task: str = "") -> list[Figures]:
    """Return the points of a chart, oldest first, of all jobs, one queue or one task.

    There is a point for each step, also if nothing ran. The last one has not ended yet, unless the span
    has. Raises ``TimeLimitReached``.
    """
    # Single minutes of a task have no sums.
    source = "" if task and span.chart == StatSpan.MINUTE else span.chart.value
    which = {"queue": queue, "task": task, "of_task": bool(task), "of_queue": bool(queue or task)}
    parameters = {"back": span.back, "step": span.step, "source": source, "end": span.end, **which}
    return [Figures(*row) for row in rows_within(alias, SPAN_TIMEOUT, _SERIES, parameters)]


def breakdown(
    alias: str, span: TimeSpan, by: By, *, queue: str = "", task: str = "", most: int = 100
) -> list[Figures]:
    """Return the figures of the span by queue or task, most attempts first. Raises ``TimeLimitReached``."""
    of_task = by == "task" or bool(task)
    which = {"queue": queue, "task": task, "of_task": of_task, "by": by, "most": most}
    return [Figures(*row) for row in span_rows(alias, _BREAKDOWN, span, **which)]


def span_rows(alias: str, statement: str, span: TimeSpan, **parameters: Any) -> list[Any]:
    """Return the rows of a statement about a span's sums, default: per task. Raises ``TimeLimitReached``."""
    which = {"queue": "", "task": "", "of_task": True, "of_queue": True, **parameters}
    span_of = {"back": span.length, "step": span.grain, "source": span.table.value, "end": span.end}
    return rows_within(alias, SPAN_TIMEOUT, statement, {**span_of, **which})


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


def percentile_text(histogram: Sequence[int], share: float) -> str:
    """Format the percentile in a suitable unit; empty if there were no jobs."""
    seconds = percentile(histogram, share)
    if seconds is None:
        return ""
    if math.isinf(seconds):
        return _("over %(period)s") % {"period": duration_text(HISTOGRAM_BOUNDS[-1])}
    return duration_text(seconds)


#: The step of each span, and the sums that it adds up. Single minutes of a task have no sums.
_STEPS = {
    HOUR.name: (timedelta(minutes=5), ""),
    DAY.name: (timedelta(hours=1), StatSpan.HOUR.value),
    WEEK.name: (timedelta(hours=6), StatSpan.HOUR.value),
}


@dataclass(frozen=True, slots=True)
class Trend:
    """The attempts of one queue or task, step by step, the oldest first. The last step has not ended yet."""

    done: list[int]
    failed: list[int]  # attempts that raised, whether they are tried again or not

    @property
    def attempts(self) -> list[int]:
        """All of them."""
        return [done + failed for done, failed in zip(self.done, self.failed, strict=True)]


def trends(alias: str, span: TimeSpan, by: By, names: Iterable[str]) -> dict[str, Trend]:
    """Return the trend of each name over an hour, day or week, or given times. Raise ``TimeLimitReached``."""
    step, source = _STEPS.get(span.name) or (span.step, span.chart.value)
    count = math.ceil(span.length / step)
    found = {name: Trend([0] * count, [0] * count) for name in names}
    parameters: dict[str, Any] = {
        "by": by, "of_task": by == "task", "of_queue": True, "queue": "", "task": "", "source": source,
        "names": list(found), "step": step, "back": span.length - step, "end": span.end,
    }  # fmt: skip
    for name, place, done, failed in rows_within(alias, SPAN_TIMEOUT, _TRENDS, parameters):
        if 0 <= place < count:  # minutes in the future are there after the clock was set back
            found[name].done[int(place)] += done
            found[name].failed[int(place)] += failed
    return found


# How fast jobs end: one definition and one wording, for the health, the pages, the charts and the terminal.
# A rate is the number of attempts that have ended in a span, divided by how long the span has lasted so far.
# An attempt counts however it ended, so a job that is tried twice counts twice.

_RATES = sql_of(__file__, "rates")


def per_second(points: Collection[Figures]) -> float:
    """Return how many attempts have ended a second in points that follow each other, or in a span."""
    seconds = sum(point.seconds for point in points)
    return sum(point.attempts for point in points) / seconds if seconds else 0.0


def rates(alias: str) -> dict[str, float]:
    """Return how many attempts end a second now, in each queue. Raises ``TimeLimitReached``."""
    return dict(rows_within(alias, SPAN_TIMEOUT, _RATES, {}))


OUTCOMES = ("done", "failed", "retried", "cancelled")


def totals(alias: str) -> list[Figures]:
    """Return all attempts of each task in each queue since the first job, in the order of queues and tasks.

    One statement reads the total and the minutes that are not in it yet, so maintenance that rolls up at this
    moment does not change the result, and the counts only grow, as Prometheus expects.
    """
    return [Figures(*row) for row in fetch_rows(alias, _TOTALS)]
