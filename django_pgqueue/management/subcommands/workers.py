"""``manage.py pgqueue workers``: list the workers."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import OutputWrapper

from ...formatting import period, plain
from ...models import Worker
from ...monitoring.workers import busy_text, queues_text, state_text, vital, with_vitals
from .._output import print_json

NAME = "workers"
HELP = "List the workers, whether they are alive, and what they do"


def add_arguments(parser: ArgumentParser) -> None:
    """Add the format."""
    parser.add_argument("--json", action="store_true", help="print the list as JSON")


def run(options: dict[str, Any], stdout: OutputWrapper) -> None:
    """Print a line for each worker."""
    found = list(with_vitals(Worker.objects.using(options["database"])).order_by("host", "pid", "pk"))
    if options.get("json"):
        print_json(stdout, [_json(worker) for worker in found])
        return
    for worker in found:
        serves_all = not worker.queues and not worker.exclude_queues
        queues = "all queues" if serves_all else f"queues {queues_text(worker)}"
        stdout.write(
            f"{plain(str(worker))} {state_text(worker)}: {busy_text(worker)} jobs, {plain(queues)}, "
            f"last heartbeat {period(worker.age)} ago (id {worker.pk})"
        )
    if not found:
        stdout.write("No worker is registered.")


def _json(worker: Any) -> dict[str, Any]:
    columns = ("id", "host", "pid", "queues", "exclude_queues", "slots", "version", "drain")
    return {
        **{name: getattr(worker, name) for name in columns},
        "state": vital(worker).value,
        "running": worker.busy - worker.lost,
        "lost": worker.lost,
        "started_at": worker.started_at.isoformat(),
        "heartbeat_at": worker.heartbeat_at.isoformat(),
    }
