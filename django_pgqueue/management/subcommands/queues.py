"""``manage.py pgqueue queues``: list the queues, with their jobs and their settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.core.management.base import CommandError
from django.utils.translation import gettext as _

from ... import conf
from ...formatting import period
from ...models import Limit, Queue
from ...monitoring.limits import numbers_text
from ...monitoring.queues import MOST_FAILURES, PATIENCE, queue_figures
from ...monitoring.spans import per_second
from ...monitoring.workers import Crew
from .._figures_texts import depth_counts, depth_json, limit_json, oldest_text, queue_text, some_rate
from .._output import fitting, marks_for, print_json, width_of
from .._workers import warn_of_unknown_queues

if TYPE_CHECKING:
    from argparse import ArgumentParser
    from datetime import timedelta

    from django.core.management.base import OutputWrapper

    from ...monitoring.queues import QueueFigures

NAME = "queues"
HELP = "List the queues: their jobs in each state, failures, limits, and how long they keep finished jobs"


@dataclass(frozen=True, slots=True)
class QueueRow:
    """A queue in the list."""

    figures: QueueFigures
    workers: int
    limit: Limit | None
    retention: timedelta
    failed_retention: timedelta

    @property
    def per_second(self) -> float:
        """How many attempts have ended a second, in the last hour."""
        return per_second([self.figures.hour]) if self.figures.hour else 0.0


def add_arguments(parser: ArgumentParser) -> None:
    """Add which queue, and the format."""
    parser.add_argument("--queue", default="", metavar="NAME", help="only this queue")
    parser.add_argument("--json", action="store_true", help="print the list as JSON")


def run(options: dict[str, Any], stdout: OutputWrapper) -> None:
    """Print a table."""
    alias, queue = options["database"], options.get("queue") or ""
    if queue:
        warn_of_unknown_queues(alias, "--queue", [queue])
    rows = [row for row in _read(alias) if queue in ("", row.figures.name)]
    if options.get("json"):
        print_json(stdout, [_json(row) for row in rows])
    elif rows:
        head = (
            _("Queue"), _("Ready"), _("Scheduled"), _("Retrying"), _("Blocked"), _("Running"),
            _("Failed in 24 h"), _("Oldest"), _("Rate"), _("Workers"), _("Limit"), _("Keeps done"),
            _("Keeps failed"),
        )  # fmt: skip
        cells, width, marks = [_cells(row) for row in rows], width_of(stdout), marks_for(stdout)
        stdout.write(fitting(head, cells, right=range(1, len(head)), width=width, marks=marks))
    else:
        stdout.write(_("No queue is in use."))


def _read(alias: str) -> list[QueueRow]:
    found, is_slow = queue_figures(alias)
    if is_slow:
        raise CommandError(f"The database did not answer within {PATIENCE:g} s.")
    crew, settings = Crew(alias), conf.current()
    own = Queue.objects.using(alias).in_bulk()
    limits = Limit.objects.using(alias).filter(name__startswith="queue:").in_bulk()
    rows = []
    for figures in found:
        queue = own.get(figures.name) or Queue()
        rows.append(
            QueueRow(
                figures,
                crew.serving(figures.name),
                limits.get(f"queue:{figures.name}"),
                settings.retention if queue.retention is None else queue.retention,
                settings.failed_retention if queue.failed_retention is None else queue.failed_retention,
            )
        )
    return rows


def _cells(row: QueueRow) -> tuple[str, ...]:
    depth, failed = row.figures.depth, row.figures.failed_day
    return (
        queue_text(depth),
        *depth_counts(depth),
        f"{failed}+" if failed >= MOST_FAILURES else str(failed),
        oldest_text(depth),
        some_rate(row.per_second),
        str(row.workers),
        (numbers_text(row.limit) if row.limit else "") or "-",
        period(row.retention),
        period(row.failed_retention),
    )


def _json(row: QueueRow) -> dict[str, Any]:
    limit = row.limit
    return {
        **depth_json(row.figures.depth, row.workers),
        "lost": row.figures.lost,
        "failed_in_24_hours": row.figures.failed_day,
        "per_second": round(row.per_second, 6),
        "limit": None if limit is None else limit_json(limit),
        "retention": row.retention.total_seconds(),
        "failed_retention": row.failed_retention.total_seconds(),
    }
