"""``manage.py pgqueue health``: one line and an exit code, for probes and scripts."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from django.core.management.base import CommandError

from ...monitoring.health import health
from .._arguments import at_least, seconds
from .._output import plain, print_json

if TYPE_CHECKING:
    from argparse import ArgumentParser

    from django.core.management.base import OutputWrapper

NAME = "health"
HELP = "Tell whether the queues are healthy: exit code 0 or 1, and one line that says why"


def add_arguments(parser: ArgumentParser) -> None:
    """Add which queues, and thresholds that replace those of ``HEALTH``."""
    parser.add_argument(
        "--queue", action="append", default=[], metavar="NAME", help="only this queue; may be repeated"
    )
    parser.add_argument(
        "--age",
        type=seconds(),
        metavar="DURATION",
        help="how long the oldest ready job may wait, such as 90s or 30m",
    )
    parser.add_argument(
        "--depth", type=at_least(0), metavar="N", help="how many jobs may be ready in a queue"
    )
    parser.add_argument(
        "--workers", type=at_least(0), metavar="N", help="how many workers must serve a queue"
    )
    parser.add_argument("--json", action="store_true", help="print the state as JSON")


def run(options: dict[str, Any], stdout: OutputWrapper) -> None:
    """Print the line, and fail if there is a problem."""
    given = {name: options.get(name) for name in ("age", "depth", "workers")}
    if given["age"] is not None:
        given["age"] = seconds()(given["age"])
    queues = options.get("queue") or []
    found = health(options["database"], [queues] if isinstance(queues, str) else queues, **given)
    if options.get("json"):
        print_json(stdout, {"healthy": found.is_healthy, **asdict(found)})
    elif found.is_healthy:
        stdout.write(plain(found.line))
    if not found.is_healthy:
        raise CommandError(plain(found.line))
