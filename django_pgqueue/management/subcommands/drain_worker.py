"""``manage.py pgqueue drain-worker``: ask a worker to finish its jobs and end."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import OutputWrapper

from ...jobs.control import drain_worker
from .._conditions import find_worker
from .._output import print_json
from ._targets import add_format

NAME = "drain-worker"
HELP = "Ask a worker process to finish its jobs and end; its supervisor starts another one"


def add_arguments(parser: ArgumentParser) -> None:
    """Add which worker, and how."""
    parser.add_argument(
        "worker", metavar="WORKER", help="its name or its id, as in the list of “pgqueue workers”"
    )
    parser.add_argument(
        "--stop", action="store_true", help="end its supervisor, too, with all of its processes"
    )
    add_format(parser)


def run(options: dict[str, Any], stdout: OutputWrapper) -> None:
    """Ask it."""
    alias = options["database"]
    worker = find_worker(alias, options["worker"])
    drain_worker(worker, replace=not options.get("stop"), using=alias)
    if options.get("json"):
        document = {
            "database": alias,
            "action": NAME,
            "worker": worker.pk,
            "name": str(worker),
            "replace": not options.get("stop"),
        }
        print_json(stdout, document)
        return
    if options.get("quiet"):
        return
    if worker.supervisor is None:
        what = f"{worker} to finish its jobs and end"
    elif options.get("stop"):
        what = f"{worker} and all processes of its supervisor to finish their jobs and end"
    else:
        what = f"{worker} to finish its jobs and end. Another process will replace it"
    stdout.write(f"Asked {what}.")
