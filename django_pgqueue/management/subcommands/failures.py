"""``manage.py pgqueue failures``: list the groups of failures, or show one of them."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError, OutputWrapper

from ...formatting import date_time, number, plain
from ...monitoring.failures import GroupFigures, group, groups, parts
from ...monitoring.spans import TimeSpan
from .._arguments import at_least, iso, span
from .._output import facts, plain_lines, print_json, table, width_of

NAME = "failures"
HELP = "List failures by error and place in the code, those with the most attempts first, or show one group"


def add_arguments(parser: ArgumentParser) -> None:
    """Add which groups, and the format."""
    parser.add_argument("fingerprint", nargs="?", default="", help="show this group, with its newest failure")
    parser.add_argument(
        "--span",
        type=span,
        default="24h",
        metavar="SPAN",
        help="how far back: 1h, 24h, 7d or 30d (default: 24h)",
    )
    parser.add_argument("--queue", default="", metavar="NAME", help="only failures of this queue")
    parser.add_argument("--task", default="", metavar="PATH", help="only failures of this task")
    parser.add_argument(
        "--muted", action="store_true", help="the groups that are muted, instead of the others"
    )
    parser.add_argument(
        "--limit", type=at_least(1), default=50, metavar="N", help="at most N groups (default: 50)"
    )
    parser.add_argument("--json", action="store_true", help="print the groups as JSON")


def run(options: dict[str, Any], stdout: OutputWrapper) -> None:
    """Print the groups, or one of them."""
    back = span(options.get("span") or "24h")
    if options.get("fingerprint"):
        _show(options, back, stdout)
    else:
        _list(options, back, stdout)


def _list(options: dict[str, Any], back: TimeSpan, stdout: OutputWrapper) -> None:
    which = {name: options.get(name) or "" for name in ("queue", "task")}
    most, muted = min(options.get("limit") or 50, 1_000), bool(options.get("muted"))
    found = groups(options["database"], back, **which, muted=muted, most=most)
    if options.get("json"):
        shown = [_json(each) for each in found]
        print_json(stdout, {"database": options["database"], "span": back.name, "groups": shown})
        return
    if not found:
        what = "No muted group" if muted else "Nothing"
        stdout.write(f"{what} has failed in the last {back.name}.")
        return
    rows = [
        (
            each.fingerprint,
            number(each.failed),
            number(each.retried),
            date_time(each.last_seen),
            ": ".join(filter(None, [each.name or "(no error)", each.message])),
            ", ".join(each.tasks[:3]),
        )
        for each in found
    ]
    head = ("Fingerprint", "Failed", "Retried", "Last seen", "Error", "Tasks")
    stdout.write(table(head, rows, right=(1, 2), width=width_of(stdout)))


def _show(options: dict[str, Any], back: TimeSpan, stdout: OutputWrapper) -> None:
    alias, fingerprint = options["database"], options["fingerprint"].replace("\0", "")
    found = group(alias, fingerprint, back)
    if found is None:
        raise CommandError(f"There is no group of failures {plain(fingerprint)!r}.")
    by_kind = parts(alias, found.fingerprint, back)
    if options.get("json"):
        counts = {
            f"by_{kind}": {part.name: {"failed": part.failed, "retried": part.retried} for part in some}
            for kind, some in by_kind.items()
        }
        document = {"database": alias, "span": back.name, **_json(found), "traceback": found.traceback}
        print_json(stdout, {**document, **counts})
        return
    known = {
        "Error": found.error_class or "(none)",
        "Message": found.message,
        f"Last {back.name}": f"{found.failed} failed, {found.retried} retried",
        "In total": f"{found.total_failed} failed, {found.total_retried} retried",
        "First seen": date_time(found.first_seen),
        "Last seen": f"{date_time(found.last_seen)}, job {found.sample_job}",
        "Muted": f"by {found.muted_by or '?'} at {date_time(found.muted_at)}" if found.muted_at else "",
    }
    for kind, some in by_kind.items():
        names = [f"{part.name} ({part.failed} failed, {part.retried} retried)" for part in some if part.name]
        known[f"By {kind}"] = ", ".join(names)
    for line in (*facts(known, width_of(stdout)), "", *plain_lines(found.traceback or "(no traceback)")):
        stdout.write(line)


def _json(found: GroupFigures) -> dict[str, Any]:
    columns = (
        "fingerprint", "error_class", "message", "failed", "retried", "total_failed", "total_retried",
        "sample_job", "muted_by",
    )  # fmt: skip
    return {
        **{name: getattr(found, name) for name in columns},
        **{name: iso(getattr(found, name)) for name in ("first_seen", "last_seen", "muted_at")},
        "tasks": list(found.tasks),
        "versions": list(found.versions),
        "points": [
            {"start": iso(point.start), "failed": point.failed, "retried": point.retried}
            for point in found.points
        ],
    }
