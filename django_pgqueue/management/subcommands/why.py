"""``manage.py pgqueue why``: say why a job does not run, or what has become of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.core.management.base import CommandError

from ...explanation import explain
from .._arguments import job_id
from .._output import plain, print_json

if TYPE_CHECKING:
    from argparse import ArgumentParser

    from django.core.management.base import OutputWrapper

NAME = "why"
HELP = "Say why a job does not run, or what has become of it"
_NAMES = ("job_id", "database", "code", "text", "cure")


def add_arguments(parser: ArgumentParser) -> None:
    """Add which job, and the format."""
    parser.add_argument("job", type=job_id, metavar="ID", help="the id of the job, such as 5 or other:5")
    parser.add_argument("--json", action="store_true", help="print the reason as JSON")


def run(options: dict[str, Any], stdout: OutputWrapper) -> None:
    """Print the reason, and what helps. That there is no such job is an error."""
    alias, pk = options["job"]
    why = explain(pk, using=alias or options["database"])
    if options.get("json"):
        print_json(stdout, {**{name: getattr(why, name) for name in _NAMES}, "facts": why.facts})
    elif why.code != "unknown":
        stdout.write(plain(f"Job {pk} ({why.facts['task_path']}): {why.text}"))
        if why.cure:
            stdout.write(plain(why.cure))
    if why.code == "unknown":
        raise CommandError(why.text)
