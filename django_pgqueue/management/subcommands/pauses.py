"""``manage.py pgqueue pauses``: list what is paused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from django.db.models import Q
from django.db.models.functions import Now
from django.utils import timezone

from ...models import Pause

if TYPE_CHECKING:
    from argparse import ArgumentParser

    from django.core.management.base import OutputWrapper

NAME = "pauses"
HELP = "List what is paused, by whom, why, and until when"


def add_arguments(parser: ArgumentParser) -> None:
    """Add the format."""
    parser.add_argument("--json", action="store_true", help="print the list as JSON")


def run(options: dict[str, Any], stdout: OutputWrapper) -> None:
    """Print the pauses in force."""
    in_force = Q(until__isnull=True) | Q(until__gt=Now())
    pauses = Pause.objects.using(options["database"]).filter(in_force).order_by("kind", "name")
    if options.get("json"):
        columns = ("kind", "name", "reason", "author", "paused_at", "until")
        rows = [{name: _plain(getattr(pause, name)) for name in columns} for pause in pauses]
        stdout.write(json.dumps(rows, indent=2))
        return
    for pause in pauses:
        author = f" by {pause.author}" if pause.author else ""
        end = f", until {_local(pause.until)}" if pause.until else ""
        reason = f": {pause.reason}" if pause.reason else ""
        stdout.write(f"{pause} paused{author} since {_local(pause.paused_at)}{end}{reason}")
    if not pauses:
        stdout.write("Nothing is paused.")


def _local(moment: Any) -> str:
    return f"{timezone.localtime(moment):%Y-%m-%d %H:%M:%S}"


def _plain(value: Any) -> Any:
    return value.isoformat() if hasattr(value, "isoformat") else value
