"""``manage.py pgqueue seed-demo``: data of a made-up shop, to look at the console with."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from django.core.management.base import CommandError

from ...demonstration.seed import clear, keep_alive, seed, used_by
from .._arguments import at_least

if TYPE_CHECKING:
    from argparse import ArgumentParser

    from django.core.management.base import OutputWrapper

NAME = "seed-demo"
HELP = "Fill the database with jobs of every kind, to try the console; never in production"

ROWS = 1_000_000
BEAT_EVERY = 5.0  # seconds


def add_arguments(parser: ArgumentParser) -> None:
    """Add how much, and what else to do."""
    parser.add_argument(
        "--rows", type=at_least(1_000), default=ROWS, metavar="N", help=f"how many jobs (default: {ROWS})"
    )
    parser.add_argument("--yes", action="store_true", help="also in a database that is in use")
    parser.add_argument("--clear", action="store_true", help="only remove what this command has made")
    parser.add_argument(
        "--stay", action="store_true", help="then send the heartbeats of its workers, until Ctrl-C"
    )


def run(options: dict[str, Any], stdout: OutputWrapper) -> None:
    """Make the data, unless other code uses the database."""
    alias = options["database"]
    if options.get("clear"):
        clear(alias)
        stdout.write("The data of the demonstration was removed.")
        return
    if not options.get("yes") and (users := list(used_by(alias))):
        raise CommandError(
            f"The database of {alias!r} is in use: {', and '.join(users)}. Use another database, or add"
            " --yes."
        )
    began = time.perf_counter()
    made = seed(alias, options.get("rows") or ROWS)
    stdout.write(f"Made {made:,} jobs in {time.perf_counter() - began:.0f} s.")
    if options.get("stay"):
        stdout.write("The workers stay alive until Ctrl-C.")
        _stay(alias)


def _stay(alias: str) -> None:
    try:
        while True:
            keep_alive(alias)
            time.sleep(BEAT_EVERY)
    except KeyboardInterrupt:
        return
