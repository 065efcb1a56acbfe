"""``manage.py pgqueue workers``: list the workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.utils.translation import gettext as _

from .. import _workers
from .._output import print_json

if TYPE_CHECKING:
    from argparse import ArgumentParser

    from django.core.management.base import OutputWrapper

NAME = "workers"
HELP = "List the workers, whether they are alive, and what they do"


def add_arguments(parser: ArgumentParser) -> None:
    """Add the format."""
    parser.add_argument("--json", action="store_true", help="print the list as JSON")


def run(options: dict[str, Any], stdout: OutputWrapper) -> None:
    """Print a line for each worker."""
    found = _workers.listed(options["database"])
    if options.get("json"):
        print_json(stdout, [_workers.as_json(worker) for worker in found])
        return
    for worker in found:
        stdout.write(_workers.sentence(worker))
    if not found:
        stdout.write(_("No worker is registered."))
