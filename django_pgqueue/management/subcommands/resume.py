"""``manage.py pgqueue resume``: end the pause of a queue, a task, or everything."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError
from typing import Any

from django.core.management.base import CommandError, OutputWrapper

from ...jobs.pause import resume
from .._output import print_json
from ._targets import add_format, add_targets, target_of, words

NAME = "resume"
HELP = "End the pause of a queue, a task, or everything"


def add_arguments(parser: ArgumentParser) -> None:
    """Add what to resume."""
    add_targets(parser)
    add_format(parser)


def run(options: dict[str, Any], stdout: OutputWrapper) -> None:
    """Resume it."""
    try:
        was_paused = resume(**target_of(options), using=options["database"])
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from error
    if not was_paused:
        raise CommandError(f"{words(options)} is not paused. See: manage.py pgqueue pauses".capitalize())
    if options.get("json"):
        target = {name: value for name, value in target_of(options).items() if value}
        [(kind, name)] = target.items()
        found = {"kind": "all", "name": ""} if kind == "everything" else {"kind": kind, "name": name}
        print_json(stdout, {"database": options["database"], "action": "resume", **found})
    elif not options.get("quiet"):
        stdout.write(f"Resumed {words(options)}.")
