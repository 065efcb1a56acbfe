"""``manage.py pgqueue failures``: list the groups of failures, or show one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.core.management.base import CommandError
from django.utils.translation import gettext as _

from ...monitoring.failures import GroupFigures, group, groups, parts
from ...monitoring.spans import SPAN_TIMEOUT
from ...postgres.timeout import TimeLimitReached
from .. import _arguments
from .._arguments import at_least, clock, iso
from .._output import marks_for, plain, plain_lines, print_json, table, width_of

if TYPE_CHECKING:
    from argparse import ArgumentParser

    from django.core.management.base import OutputWrapper

    from ...monitoring.spans import Span

NAME = "failures"
HELP = "List failures by error and place in the code, those with the most attempts first, or show one group"


def add_arguments(parser: ArgumentParser) -> None:
    """Add which groups, and the format."""
    parser.add_argument("fingerprint", nargs="?", default="", help="show this group, with its newest failure")
    parser.add_argument(
        "--span",
        type=_arguments.span,
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
    try:
        if options.get("fingerprint"):
            _show(options, stdout)
        else:
            _list(options, stdout)
    except TimeLimitReached as error:
        raise CommandError(f"The database did not answer within {SPAN_TIMEOUT:g} s.") from error


def _list(options: dict[str, Any], stdout: OutputWrapper) -> None:
    span = _arguments.span(options.get("span") or "24h")
    which = {name: options.get(name) or "" for name in ("queue", "task")}
    most, muted = min(options.get("limit") or 50, 1_000), bool(options.get("muted"))
    found = groups(options["database"], span, **which, muted=muted, most=most)
    if options.get("json"):
        document = {
            "database": options["database"],
            "span": span.name,
            "groups": [_json(each) for each in found],
        }
        print_json(stdout, document)
        return
    if not found:
        text = _("Nothing has failed in the last %(span)s.")
        if muted:
            text = _("No muted group has failed in the last %(span)s.")
        stdout.write(text % {"span": span.name})
        return
    rows = [
        (
            each.fingerprint,
            str(each.failed),
            str(each.retried),
            clock(each.last_seen),
            ": ".join(filter(None, [each.name or "(no error)", each.message])),
            ", ".join(each.tasks[:3]),
        )
        for each in found
    ]
    head = (_("Fingerprint"), _("Failed"), _("Retried"), _("Last seen"), _("Error"), _("Tasks"))
    width = width_of(stdout)
    stdout.write(table(head, rows, right=(1, 2), width=width, marks=marks_for(stdout)))


def _show(options: dict[str, Any], stdout: OutputWrapper) -> None:
    span, alias = _arguments.span(options.get("span") or "24h"), options["database"]
    found = group(alias, options["fingerprint"].replace("\0", ""), span)
    if found is None:
        raise CommandError(f"There is no group of failures {plain(options['fingerprint'])!r}.")
    if options.get("json"):
        document = {"database": alias, "span": span.name, **_json(found), "traceback": found.traceback}
        print_json(stdout, {**document, **_counts(alias, found, span)})
        return
    for line in _lines(alias, found, span):
        stdout.write(line)


def _lines(alias: str, found: GroupFigures, span: Span) -> list[str]:
    muted = "" if found.muted_at is None else f"muted by {found.muted_by or '?'} at {clock(found.muted_at)}"
    facts = [
        ("Error", found.error_class or "(none)"),
        ("Message", found.message),
        (f"Last {span.name}", f"{found.failed} failed, {found.retried} retried"),
        ("In total", f"{found.total_failed} failed, {found.total_retried} retried"),
        ("First seen", clock(found.first_seen)),
        ("Last seen", f"{clock(found.last_seen)}, job {found.sample_job}"),
        ("Muted", muted),
    ]
    for kind, some in parts(alias, found.fingerprint, span).items():
        names = [f"{part.name} ({part.failed} failed, {part.retried} retried)" for part in some if part.name]
        facts.append((f"By {kind}", ", ".join(names)))
    lines = [f"{name + ':':<12} {plain(text)}" for name, text in facts if text]
    return [*lines, "", *plain_lines(found.traceback or "(no traceback)")]


def _json(found: GroupFigures) -> dict[str, Any]:
    return {
        "fingerprint": found.fingerprint,
        "error_class": found.error_class,
        "message": found.message,
        "failed": found.failed,
        "retried": found.retried,
        "total_failed": found.total_failed,
        "total_retried": found.total_retried,
        "first_seen": iso(found.first_seen),
        "last_seen": iso(found.last_seen),
        "tasks": list(found.tasks),
        "versions": list(found.versions),
        "sample_job": found.sample_job,
        "muted_at": None if found.muted_at is None else iso(found.muted_at),
        "muted_by": found.muted_by,
        "points": [
            {"start": iso(point.start), "failed": point.failed, "retried": point.retried}
            for point in found.points
        ],
    }


def _counts(alias: str, found: GroupFigures, span: Span) -> dict[str, Any]:
    return {
        f"by_{kind}": {part.name: {"failed": part.failed, "retried": part.retried} for part in some}
        for kind, some in parts(alias, found.fingerprint, span).items()
    }
