"""``manage.py pgqueue why``: say why a job does not run, or what has become of it."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError, OutputWrapper

from ...explanation import why
from ...formatting import plain
from .._arguments import job_id
from .._output import print_json

NAME = "why"
HELP = "Say why a job does not run, or what has become of it"
_NAMES = ("job_id", "database", "code", "text", "fix")


def add_arguments(parser: ArgumentParser) -> None:
    """Add which job, and the format."""
    parser.add_argument("job", type=job_id, metavar="ID", help="the id of the job, such as 5 or other:5")
    parser.add_argument("--json", action="store_true", help="print the reason as JSON")


def run(options: dict[str, Any], stdout: OutputWrapper) -> None:
    """Print the reason, and what helps. That there is no such job is an error."""
    alias, pk = options["job"]
    reason = why(pk, using=alias or options["database"])
    if options.get("json"):
        print_json(stdout, {**{name: getattr(reason, name) for name in _NAMES}, "facts": reason.facts})
    elif reason.code != "unknown":
        stdout.write(plain(f"Job {pk} ({reason.facts['task_path']}): {reason.text}"))
        if reason.fix:
            stdout.write(plain(reason.fix))
    if reason.code == "unknown":
        raise CommandError(reason.text)
