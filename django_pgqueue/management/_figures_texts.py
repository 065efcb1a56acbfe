"""Figures on the command line: tables with aligned columns, and the same values as JSON."""

from __future__ import annotations

import math
from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.utils import timezone

from ..figures.depth import MOST
from ..figures.percentiles import SHARES
from ..models.stat import HISTOGRAM_BOUNDS
from ..wording import period

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..figures.depth import Depth
    from ..figures.spans import Figures

__all__ = ["depth_json", "depth_table", "figures_json", "figures_table"]

_QUEUE_HEAD = ("Queue", "Ready", "Scheduled", "Running", "Blocked", "Oldest ready", "Workers")


def depth_table(depths: Sequence[tuple[Depth, int]]) -> str:
    """Return the table of queues, each with the number of workers that claim its jobs."""
    rows = [
        (
            f"{depth.queue_name} (paused)" if depth.is_paused else depth.queue_name,
            *(_count(count) for count in (depth.ready, depth.scheduled, depth.running, depth.blocked)),
            _time(depth.oldest_ready) if depth.ready else "-",
            str(workers),
        )
        for depth, workers in depths
    ]
    return _table(_QUEUE_HEAD, rows)


def depth_json(depth: Depth, workers: int) -> dict[str, Any]:
    """Return the values of a queue."""
    return {**asdict(depth), "workers": workers}


def figures_table(rows: Sequence[Figures], by: str) -> str:
    """Return the table of what ran, with percentiles of the times."""
    percents = [f"p{round(share * 100)}" for share in SHARES]
    times = (*(f"Waited {name}" for name in percents), *(f"Ran {name}" for name in percents))
    head = (by.capitalize(), "Done", "Failed", "Retried", "Cancelled", *times)
    lines = [
        (
            _name(row, by),
            *(str(count) for count in (row.done, row.failed, row.retried, row.cancelled)),
            *(_time(row.waited(share)) for share in SHARES),
            *(_time(row.ran(share)) for share in SHARES),
        )
        for row in rows
    ]
    return _table(head, lines)


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
        return f"{timezone.localtime(row.start):%Y-%m-%d %H:%M}"
    return row.queue_name if by == "queue" else row.task_path


def _finite(seconds: float | None) -> float | None:
    return None if seconds is None or math.isinf(seconds) else round(seconds, 6)


def _count(number: int) -> str:
    return f"about {number}" if number >= MOST else str(number)


def _time(seconds: float | None) -> str:
    """Format a time in a suitable unit."""
    if seconds is None:
        return "-"
    if math.isinf(seconds):
        return f"over {period(timedelta(seconds=HISTOGRAM_BOUNDS[-1]))}"
    if seconds < 0.9995:
        return f"{seconds * 1000:.3g} ms"
    return f"{seconds:.3g} s" if seconds < 60 else period(timedelta(seconds=seconds))


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Align the first column to the left and the others to the right."""
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    return "\n".join(
        "  ".join(
            text.rjust(width) if column else text.ljust(width)
            for column, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in (head, *rows)
    )
