"""Figures on the command line: tables with aligned columns, and the same values as JSON."""

from __future__ import annotations

import math
from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.utils.translation import gettext as _

from ..formatting import period, throughput
from ..models.stat import HISTOGRAM_BOUNDS
from ..monitoring.queues import MOST
from ..monitoring.spans import SHARES
from ..postgres.clock import local
from ._output import fitting

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..monitoring.health import Problem
    from ..monitoring.queues import Depth
    from ..monitoring.spans import Figures
    from ._output import Marks


def depth_table(
    depths: Sequence[tuple[Depth, int]],
    width: int | None,
    marks: Marks,
    rates: Mapping[str, float] | None = None,
) -> str:
    """Return the table of queues, each with the number of workers that claim its jobs, and its rate."""
    head = [
        _("Queue"), _("Ready"), _("Scheduled"), _("Retrying"), _("Blocked"), _("Running"),
        _("Oldest"), _("Workers"),
    ]  # fmt: skip
    rows = [
        [queue_text(depth), *depth_counts(depth), oldest_text(depth), str(workers)]
        for depth, workers in depths
    ]
    if rates is not None:
        head.append(_("Rate"))
        for row, (depth, _workers) in zip(rows, depths, strict=True):
            row.append(some_rate(rates.get(depth.queue_name, 0.0)))
    return fitting(head, rows, right=range(1, len(head)), width=width, marks=marks)


def queue_text(depth: Depth) -> str:
    """Return the name of a queue, and that it is paused."""
    return _("%(queue)s (paused)") % {"queue": depth.queue_name} if depth.is_paused else depth.queue_name


def depth_counts(depth: Depth) -> list[str]:
    """Return how many jobs are ready, scheduled, retrying, blocked and running."""
    counts = (depth.ready, depth.scheduled, depth.retrying, depth.blocked, depth.running)
    return [count_text(count) for count in counts]


def oldest_text(depth: Depth) -> str:
    """Return how long the oldest ready job has been due."""
    return seconds_text(depth.oldest_ready) if depth.ready else "-"


def some_rate(per_second: float) -> str:
    """Return a rate in words, if anything ran."""
    return throughput(per_second) if per_second else "-"


def depth_json(depth: Depth, workers: int) -> dict[str, Any]:
    """Return the values of a queue."""
    return {**asdict(depth), "workers": workers}


def problem_json(problem: Problem) -> dict[str, Any]:
    """Return the values of a problem."""
    return {**asdict(problem), "is_minor": problem.is_minor}


def limit_json(limit: Any, prefix: str = "") -> dict[str, Any]:
    """Return the numbers of a limit, or with the prefix ``declared_`` those that the code declares."""
    per = getattr(limit, f"{prefix}per")
    return {
        "concurrency": getattr(limit, f"{prefix}concurrency"),
        "rate": getattr(limit, f"{prefix}rate"),
        "per": None if per is None else per.total_seconds(),
        "burst": getattr(limit, f"{prefix}burst"),
    }


def figures_table(rows: Sequence[Figures], by: str, width: int | None, marks: Marks) -> str:
    """Return the table of what ran, with percentiles of the times."""
    percents = [f"p{round(share * 100)}" for share in SHARES]
    times = (
        *(_("Waited %(share)s") % {"share": name} for name in percents),
        *(_("Ran %(share)s") % {"share": name} for name in percents),
    )
    first = {"queue": _("Queue"), "task": _("Task"), "time": _("Time")}[by]
    head = (first, _("Done"), _("Failed"), _("Retried"), _("Cancelled"), *times)
    lines = [
        (
            _name(row, by),
            *(str(count) for count in (row.done, row.failed, row.retried, row.cancelled)),
            *(seconds_text(row.waited(share)) for share in SHARES),
            *(seconds_text(row.ran(share)) for share in SHARES),
        )
        for row in rows
    ]
    return fitting(head, lines, right=range(1, len(head)), width=width, marks=marks)


def figures_json(row: Figures, by: str) -> dict[str, Any]:
    """Return the values of a row. A percentile is None without attempts and above the last class."""
    return {
        by: row.start.isoformat() if by == "time" else _name(row, by),
        "done": row.done,
        "failed": row.failed,
        "retried": row.retried,
        "cancelled": row.cancelled,
        "waited": {f"p{round(share * 100)}": _finite(row.waited(share)) for share in SHARES},
        "ran": {f"p{round(share * 100)}": _finite(row.ran(share)) for share in SHARES},
    }


def _name(row: Figures, by: str) -> str:
    if by == "time":
        return f"{local(row.start):%Y-%m-%d %H:%M}"
    return row.queue_name if by == "queue" else row.task_path


def _finite(seconds: float | None) -> float | None:
    return None if seconds is None or math.isinf(seconds) else round(seconds, 6)


def count_text(number: int) -> str:
    """Format a count of waiting jobs, which is an estimate from ``MOST`` on."""
    return _("about %(count)s") % {"count": number} if number >= MOST else str(number)


def seconds_text(seconds: float | None) -> str:
    """Format a time in a suitable unit."""
    if seconds is None:
        return "-"
    if math.isinf(seconds):
        return _("over %(period)s") % {"period": period(timedelta(seconds=HISTOGRAM_BOUNDS[-1]))}
    if seconds < 0.9995:
        return f"{seconds * 1000:.3g} ms"
    return f"{seconds:.3g} s" if seconds < 60 else period(timedelta(seconds=seconds))
