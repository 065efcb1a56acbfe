"""``manage.py pgqueue pauses``: list what is paused."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import OutputWrapper

from ...formatting import date_time, plain
from ...models import Pause
from ...models.queue import IN_FORCE
from .._output import print_json
from ._targets import as_json

NAME = "pauses"
HELP = "List what is paused, by whom, why, and until when"


def add_arguments(parser: ArgumentParser) -> None:
    """Add the format."""
    parser.add_argument("--json", action="store_true", help="print the list as JSON")


def run(options: dict[str, Any], stdout: OutputWrapper) -> None:
    """Print the pauses in force."""
    pauses = Pause.objects.using(options["database"]).filter(IN_FORCE).order_by("kind", "name")
    if options.get("json"):
        print_json(stdout, [as_json(pause) for pause in pauses])
        return
    for pause in pauses:
        author = f" by {plain(pause.author)}" if pause.author else ""
        end = f", until {date_time(pause.until)}" if pause.until else ""
        reason = f": {plain(pause.reason)}" if pause.reason else ""
        stdout.write(f"{plain(str(pause))} paused{author} since {date_time(pause.paused_at)}{end}{reason}")
    if not pauses:
        stdout.write("Nothing is paused.")
