"""``manage.py pgqueue database``: the state of the database as the queue needs it."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Iterator
from typing import Any

from django.core.management.base import OutputWrapper

from ...formatting import plain
from ...monitoring.database import DatabasePart, PartState, database
from .._output import print_json

NAME = "database"
HELP = "Show locks, old transactions, dead rows, connections and traffic, and when to act"


def add_arguments(parser: ArgumentParser) -> None:
    """Add what to print."""
    parser.add_argument(
        "--statements",
        action="store_true",
        help="with --json: also print the texts of statements, which may contain the arguments of jobs",
    )
    parser.add_argument("--json", action="store_true", help="print everything that was found as JSON")


def run(options: dict[str, Any], stdout: OutputWrapper) -> None:
    """Print a line for each part, and below it what to do if there is something to do."""
    parts = database(options["database"], statements=bool(options.get("statements")))
    if options.get("json"):
        print_json(stdout, {"database": options["database"], "parts": [part.as_json() for part in parts]})
        return
    for part in parts:
        for line in _lines(part):
            stdout.write(plain(line))


def _lines(part: DatabasePart) -> Iterator[str]:
    yield f"{part.title}: {PartState(part.state).label}. {part.finding}"
    if part.state == PartState.ACT:
        yield f"  {part.rule}"
