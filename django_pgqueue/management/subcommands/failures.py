"""``manage.py pgqueue failures``: list the groups of failures, or show one of them."""

from __future__ import annotations

from argparse import ArgumentParser
from dataclasses import asdict
from typing import Any

from django.core.management.base import CommandError, OutputWrapper

from ...formatting import date_time, number, plain
from ...monitoring.failures import GroupFigures, group, groups, parts
from ...monitoring.spans import TimeSpan
from .._arguments import at_least, span
from .._output import plain_lines, print_facts, print_json, print_table
from .._parser import Subcommand


def _add_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("fingerprint", nargs="?", default="", help="show this group, with its newest failure")
    add("--span", type=span, default="24h", metavar="SPAN", help="1h, 24h, 7d or 30d back (default: 24h)")
    add("--queue", default="", metavar="NAME", help="only failures of this queue")
    add("--task", default="", metavar="PATH", help="only failures of this task")
    add("--muted", action="store_true", help="the groups that are muted, instead of the others")
    add("--limit", type=at_least(1), default=50, metavar="N", help="at most N groups (default: 50)")
    add("--json", action="store_true", help="print the groups as JSON")


def run(options: dict[str, Any], stdout: OutputWrapper) -> None:
    """Print the groups, or one of them."""
    (_show if options["fingerprint"] else _list)(options, options["span"], stdout)


def _list(options: dict[str, Any], back: TimeSpan, stdout: OutputWrapper) -> None:
    which = {name: options[name] for name in ("queue", "task", "muted")}
    found = groups(options["database"], back, **which, most=min(options["limit"], 1_000))
    if options["json"]:
        shown = [_json(each) for each in found]
        print_json(stdout, {"database": options["database"], "span": back.name, "groups": shown})
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
    what = "No muted group" if options["muted"] else "Nothing"
    print_table(stdout, head, rows, right=(1, 2), empty=f"{what} has failed in the last {back.name}.")


def _show(options: dict[str, Any], back: TimeSpan, stdout: OutputWrapper) -> None:
    alias, fingerprint = options["database"], options["fingerprint"].replace("\0", "")
    found = group(alias, fingerprint, back)
    if found is None:
        raise CommandError(f"There is no group of failures {plain(fingerprint)!r}.")
    by_kind = parts(alias, found.fingerprint, back)
    if options["json"]:
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
    print_facts(stdout, known)
    stdout.write("\n".join(["", *plain_lines(found.traceback or "(no traceback)")]))


def _json(found: GroupFigures) -> dict[str, Any]:
    columns = (
        "fingerprint", "error_class", "message", "failed", "retried", "total_failed", "total_retried",
        "sample_job", "muted_by", "first_seen", "last_seen", "muted_at",
    )  # fmt: skip
    return {
        **{name: getattr(found, name) for name in columns},
        "tasks": list(found.tasks),
        "versions": list(found.versions),
        "points": [asdict(point) for point in found.points],
    }


SUBCOMMANDS = [
    Subcommand("failures", "List failures by error and place, or show one group", _add_arguments, run)
]
