"""``manage.py pgqueue limits``: list the limits, and what runs and waits under them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.core.management.base import CommandError
from django.utils.translation import gettext as _

from ...formatting import number
from ...monitoring.limits import limit_figures, origin, rate_text
from ...monitoring.queues import PATIENCE
from ...postgres.timeout import TimeLimitReached
from .._figures_texts import count_text, limit_json
from .._output import fitting, marks_for, print_json, width_of

if TYPE_CHECKING:
    from argparse import ArgumentParser

    from django.core.management.base import OutputWrapper

    from ...formatting import number
from ...monitoring.limits import LimitFigures

NAME = "limits"
HELP = "List the limits of queues, tasks and keys, what runs and waits under them, and who has set them"


def add_arguments(parser: ArgumentParser) -> None:
    """Add the format."""
    parser.add_argument("--json", action="store_true", help="print the list as JSON")


def run(options: dict[str, Any], stdout: OutputWrapper) -> None:
    """Print a table."""
    try:
        found = limit_figures(options["database"])
    except TimeLimitReached as error:
        raise CommandError(f"The database did not answer within {PATIENCE:g} s.") from error
    if options.get("json"):
        print_json(stdout, [_json(each) for each in found])
    elif found:
        head = (
            _("Limit"), _("At once"), _("Rate"), _("Running"), _("Waiting"), _("If full"), _("Origin")
        )  # fmt: skip
        rows = [_row(each) for each in found]
        stdout.write(fitting(head, rows, right=(1, 3, 4), width=width_of(stdout), marks=marks_for(stdout)))
    else:
        stdout.write(_("There is no limit. Workers write those that the code declares."))


def _row(found: LimitFigures) -> tuple[str, ...]:
    limit = found.limit
    named = {"queue": _("queue %(name)s") % {"name": found.name}, "all": _("everything")}
    return (
        named.get(found.kind, found.name),
        "-" if limit.concurrency is None else number(limit.concurrency),
        rate_text(limit.rate, limit.per, limit.burst) or "-",
        str(found.running),
        count_text(found.waiting),
        limit.on_full,
        origin(limit),
    )


def _json(found: LimitFigures) -> dict[str, Any]:
    limit = found.limit
    declared = limit_json(limit, "declared_") if limit.is_declared else None
    return {
        "kind": found.kind,
        "name": found.name,
        **limit_json(limit),
        "on_full": limit.on_full,
        "running": found.running,
        "waiting": found.waiting,
        "set_by_hand": limit.is_overridden,
        "declared": declared,
        "declared_by": limit.declared_by,
    }
