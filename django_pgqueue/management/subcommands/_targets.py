"""The arguments of ``pause`` and ``resume`` that say what is meant."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from ...models import Pause
from .._arguments import iso


def add_targets(parser: ArgumentParser) -> None:
    """Add the arguments, of which exactly one is required."""
    group = parser.add_mutually_exclusive_group(required=True)
    group.add_argument("--queue", metavar="NAME", help="a queue")
    group.add_argument("--task", metavar="PATH", help="a task, such as shop.tasks.sync")
    group.add_argument("--everything", action="store_true", help="all queues")


def add_format(parser: ArgumentParser) -> None:
    """Add how to say what was done."""
    parser.add_argument("--json", action="store_true", help="print what was done as JSON")
    parser.add_argument("--quiet", action="store_true", help="print nothing but errors")


def target_of(options: dict[str, Any]) -> dict[str, Any]:
    """Return the target as arguments of ``pause()`` and ``resume()``."""
    return {name: options.get(name) for name in ("queue", "task", "everything")}


def words(options: dict[str, Any]) -> str:
    """Return the target in words."""
    if options.get("queue"):
        return f"the queue {options['queue']}"
    return f"the task {options['task']}" if options.get("task") else "everything"


# ----------------------------------------------------------------------------
# A pause as JSON.


def as_json(pause: Pause) -> dict[str, Any]:
    """Return the values of a pause."""
    return {
        **{name: getattr(pause, name) for name in ("kind", "name", "reason", "author")},
        "paused_at": iso(pause.paused_at),
        "until": iso(pause.until),
    }
