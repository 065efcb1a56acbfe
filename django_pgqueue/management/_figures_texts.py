"""Figures on the command line: tables with aligned columns, and the same values as JSON."""

from __future__ import annotations

import math
from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.utils.translation import gettext as _

from ..formatting import period
from ..models.stat import HISTOGRAM_BOUNDS
from ..monitoring.queues import MOST
from ..monitoring.spans import SHARES
from ..postgres.clock import local
from ._output import table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..monitoring.queues import Depth
    from ..monitoring.spans import Figures
    from ._output import Marks

__all__ = ["count_text", "depth_json", "depth_table", "figures_json", "figures_table", "seconds_text"]


def depth_table(depths: Sequence[tuple[Depth, int]], width: int | None, marks: Marks) -> str:
    """Return the table of queues, each with the number of workers that claim its jobs."""
    head = (
        _("Queue"), _("Ready"), _("Scheduled"), _("Backing off"), _("Running"), _("Blocked"),
        _("Oldest ready"), _("Workers"),
    )  # fmt: skip
    rows = [
        (
            _("%(queue)s (paused)") % {"queue": depth.queue_name} if depth.is_paused else depth.queue_name,
            *map(count_text, (depth.ready, depth.scheduled, depth.retrying, depth.running, depth.blocked)),
            seconds_text(depth.oldest_ready) if depth.ready else "-",
            str(workers),
        )
        for depth, workers in depths
    ]
    return table(head, rows, right=range(1, len(head)), width=width, marks=marks)


def depth_json(depth: Depth, workers: int) -> dict[str, Any]:
    """Return the values of a queue."""
    return {**asdict(depth), "workers": workers}


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
    return table(head, lines, right=range(1, len(head)), width=width, marks=marks)


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
