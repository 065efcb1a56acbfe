"""``manage.py pgqueue top``: watch the queue in a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.core.management.base import CommandError

from .._arguments import seconds
from .._output import marks_for, width_of
from .._top.drawing import PlainScreen, report
from .._top.live import watch
from .._top.panes import headline, read

if TYPE_CHECKING:
    from argparse import ArgumentParser

    from django.core.management.base import OutputWrapper

    from .._top.drawing import report
from .._top.live import Screen

NAME = "top"
SHORTEST = 0.1  # seconds between two looks
HELP = "Watch the queue: its health, queues, workers, running jobs and failures"


def add_arguments(parser: ArgumentParser) -> None:
    """Add how often, and how."""
    parser.add_argument(
        "--interval",
        type=seconds(SHORTEST),
        default=2,
        metavar="DURATION",
        help="between two looks (default: 2 seconds)",
    )
    parser.add_argument("--once", action="store_true", help="print everything once as text, and end")
    parser.add_argument("--plain", action="store_true", help="draw without Rich, also if it is installed")


def run(options: dict[str, Any], stdout: OutputWrapper) -> None:
    """Watch it on a terminal. On a pipe or in a file, print it once."""
    alias = options["database"]
    if stdout.isatty() and not options.get("once"):
        watch(alias, seconds(SHORTEST)(options.get("interval") or 2), _screen(options, stdout))
        return
    reading, marks = read(alias), marks_for(stdout)
    if reading.error:
        raise CommandError(headline(reading).text)
    for line in report(reading, width_of(stdout), marks):
        stdout.write(line)


def _screen(options: dict[str, Any], stdout: OutputWrapper) -> Screen:
    if options.get("plain"):
        return PlainScreen(stdout)
    try:
        from .._top.rich_screen import RichScreen
    except ImportError:
        return PlainScreen(stdout)
    return RichScreen(stdout, no_color=bool(options.get("no_color")))
