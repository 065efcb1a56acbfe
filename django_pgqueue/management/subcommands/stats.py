"""``manage.py pgqueue stats``: what waits in each queue, and what ran."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from django.core.management.base import CommandError
from django.utils.translation import gettext as _

from ...monitoring.health import verdict
from ...monitoring.queues import depths
from ...monitoring.spans import breakdown, series
from ...monitoring.workers import Crew
from ...postgres.timeout import TimeLimitReached, time_limit
from .. import _arguments
from .. import _figures_texts as texts
from .._output import marks_for, plain, print_json, width_of
from .._workers import warn_of_unknown_queues

if TYPE_CHECKING:
    from argparse import ArgumentParser

    from django.core.management.base import OutputWrapper

NAME = "stats"
HELP = "Show the depth and age of each queue, and what ran in the last hour, day, week or month"

PATIENCE = 10.0  # seconds that one statement may take


def add_arguments(parser: ArgumentParser) -> None:
    """Add what to show, and the format."""
    parser.add_argument(
        "--span",
        type=_arguments.span,
        default="1h",
        metavar="SPAN",
        help="how far back: 1h, 24h, 7d or 30d (default: 1h)",
    )
    parser.add_argument(
        "--by", choices=["queue", "task", "time"], default="task", help="one row for each of these"
    )
    parser.add_argument("--queue", default="", metavar="NAME", help="only this queue")
    parser.add_argument("--task", default="", metavar="PATH", help="only what ran of this task")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")


def run(options: dict[str, Any], stdout: OutputWrapper) -> None:
    """Print the health and two tables."""
    alias = options["database"]
    by: Literal["queue", "task", "time"] = options.get("by") or "task"
    span = _arguments.span(options.get("span") or "1h")
    queue, task = options.get("queue") or "", options.get("task") or ""
    if queue:
        warn_of_unknown_queues(alias, "--queue", [queue])
    try:
        with time_limit(alias, PATIENCE):
            crew = Crew(alias)
            live = [each for each in depths(alias).values() if queue in ("", each.queue_name)]
            if by == "time":
                ran = series(alias, span, queue=queue, task=task)
            else:
                ran = breakdown(alias, span, by, queue=queue, task=task)
    except TimeLimitReached as error:
        raise CommandError(f"The database did not answer within {PATIENCE:g} s.") from error
    state = verdict(alias)
    queues = [(depth, crew.serving(depth.queue_name)) for depth in live]
    if options.get("json"):
        found = {
            "database": alias,
            "healthy": state.is_working,
            "summary": state.headline,
            "problems": [texts.problem_json(problem) for problem in state.problems],
            "queues": [texts.depth_json(depth, workers) for depth, workers in queues],
            "span": span.name,
            "ran": [texts.figures_json(row, by) for row in ran],
        }
        print_json(stdout, found)
        return
    fit = width_of(stdout), marks_for(stdout)
    stdout.write(plain(state.line))
    stdout.write("")
    stdout.write(texts.depth_table(queues, *fit) if queues else _("No queue has live jobs."))
    stdout.write("")
    if any(row.attempts for row in ran):
        stdout.write(texts.figures_table(ran, by, *fit))
    else:
        stdout.write(_("Nothing ran in the last %(span)s.") % {"span": span.name})
