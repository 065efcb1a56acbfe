"""Workers on the command line: how they are named, and how they are shown."""

from __future__ import annotations

from argparse import ArgumentTypeError
from typing import Any

from django.core.management.base import CommandError

from ..models import Worker
from ..vitals import busy_text, queues_text, state_text, vital, with_vitals
from ..wording import period
from ._output import plain

__all__ = ["as_json", "find", "listed", "sentence"]


def listed(alias: str) -> list[Any]:
    """Return the workers of a database with their states, in the order of their names."""
    return list(with_vitals(Worker.objects.using(alias)).order_by("host", "pid", "pk"))


def find(alias: str, name: str) -> Worker:
    """Return the worker with this id or name, such as ``app-1:4711``."""
    known = [worker for worker in listed(alias) if name in (str(worker.pk), str(worker))]
    if len(known) > 1:
        ids = ", ".join(str(worker.pk) for worker in known)
        raise ArgumentTypeError(f"{len(known)} workers have the name {name!r}. Give one of the ids {ids}.")
    if not known:
        raise CommandError(
            f"No worker has the name or the id {name!r} in the database {alias!r}. "
            "See: manage.py pgqueue workers"
        )
    found: Worker = known[0]
    return found


def sentence(worker: Any) -> str:
    """Return the line of the list."""
    serves_all = not worker.queues and not worker.exclude_queues
    queues = "all queues" if serves_all else f"queues {queues_text(worker)}"
    return (
        f"{plain(str(worker))} {state_text(worker)}: {busy_text(worker)} jobs, {plain(queues)}, "
        f"last heartbeat {period(worker.age)} ago (id {worker.pk})"
    )


def as_json(worker: Any) -> dict[str, Any]:
    """Return what the list shows as values."""
    columns = ("id", "host", "pid", "queues", "exclude_queues", "slots", "version", "drain")
    return {
        **{name: getattr(worker, name) for name in columns},
        "state": vital(worker).value,
        "running": worker.busy,
        "started_at": worker.started_at.isoformat(),
        "heartbeat_at": worker.heartbeat_at.isoformat(),
    }
