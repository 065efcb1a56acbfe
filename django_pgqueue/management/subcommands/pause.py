"""``manage.py pgqueue pause``: pause a queue, a task, or everything."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError
from typing import Any

from django.core.management.base import OutputWrapper

from ...formatting import local
from ...jobs.pause import pause
from .._arguments import moment, seconds, user_name
from .._conditions import warn_of_unknown_queues
from .._output import print_json
from ._targets import add_format, add_targets, as_json, target_of, words

NAME = "pause"
HELP = "Pause a queue, a task, or everything; running jobs finish"


def add_arguments(parser: ArgumentParser) -> None:
    """Add what to pause, why, and until when."""
    add_targets(parser)
    parser.add_argument("--reason", default="", metavar="TEXT", help="why, for others to read")
    parser.add_argument("--author", metavar="NAME", help="who (default: your user name)")
    add_format(parser)
    end = parser.add_mutually_exclusive_group()
    end.add_argument(
        "--until", type=moment, metavar="TIME", help="when it ends by itself, such as 2026-11-23T18:00"
    )
    end.add_argument(
        "--for",
        dest="duration",
        type=seconds(),
        metavar="DURATION",
        help="for how long, such as 90s, 30m, 2h or 1d",
    )


def run(options: dict[str, Any], stdout: OutputWrapper) -> None:
    """Pause it."""
    alias = options["database"]
    if options.get("queue"):
        warn_of_unknown_queues(alias, "--queue", [options["queue"]])
    author, length = options.get("author"), options.get("duration")
    try:
        paused = pause(
            **target_of(options),
            reason=options.get("reason") or "",
            author=user_name() if author is None else author,
            until=options.get("until"),
            duration=None if length is None else seconds()(length),
            using=alias,
        )
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from error
    if options.get("json"):
        print_json(stdout, {"database": alias, "action": "pause", **as_json(paused)})
        return
    if options.get("quiet"):
        return
    end = f" until {local(paused.until):%Y-%m-%d %H:%M:%S %Z}" if paused.until else ""
    stdout.write(f"Paused {words(options)}{end}.")
