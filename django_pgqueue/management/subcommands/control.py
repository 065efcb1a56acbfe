"""``manage.py pgqueue pause``, ``pauses``, ``resume`` and ``drain-worker``."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError
from typing import Any

from django.core.management.base import CommandError

from ...formatting import date_time, local
from ...jobs.limits import drain_worker, pause, resume
from ...models import Pause
from ...models.queue import IN_FORCE
from .._arguments import moment, seconds, user_name
from .._conditions import find_worker, warn_of_unknown_queues
from .._output import Output
from .._parser import argument, subcommand

_QUIET = argument("--quiet", action="store_true", help="print nothing but errors")
_REASON = argument("--reason", default="", metavar="TEXT", help="why, for others to read")
_AUTHOR = argument("--author", metavar="NAME", help="who (default: your user name)")


def _add_targets(parser: ArgumentParser) -> None:
    group = parser.add_mutually_exclusive_group(required=True)
    group.add_argument("--queue", metavar="NAME", help="a queue")
    group.add_argument("--task", metavar="PATH", help="a task, such as shop.tasks.sync")
    group.add_argument("--everything", action="store_true", help="all queues")


def _add_end(parser: ArgumentParser) -> None:
    add = parser.add_mutually_exclusive_group().add_argument
    until, length = (
        "when it ends by itself, such as 2026-11-23T18:00",
        "for how long, such as 90s, 30m, 2h or 1d",
    )
    add("--until", type=moment, metavar="TIME", help=until)
    add("--for", dest="duration", type=seconds(), metavar="DURATION", help=length)


def _done(options: dict[str, Any], document: dict[str, Any], text: str) -> Output:
    """Return what was done."""
    return Output(() if options["quiet"] else [text], {"database": options["database"], **document})


def _target(options: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """Return the target as arguments of ``pause()`` and ``resume()``, and in words."""
    target = {name: options[name] for name in ("queue", "task", "everything")}
    words = (f"the {name} {target[name]}" for name in ("queue", "task") if target[name])
    return target, next(words, "everything")


def _pause_json(row: Pause) -> dict[str, Any]:
    return {name: getattr(row, name) for name in ("kind", "name", "reason", "author", "paused_at", "until")}


@subcommand(
    "pause", "Pause a queue, a task, or everything; running jobs finish",
    _add_targets, _REASON, _AUTHOR, _QUIET, _add_end,
)  # fmt: skip
def _pause(options: dict[str, Any]) -> Output:
    target, words = _target(options)
    author, rest = options["author"], {name: options[name] for name in ("reason", "until", "duration")}
    if target["queue"]:
        warn_of_unknown_queues(options["database"], "--queue", [target["queue"]])
    try:
        author = user_name() if author is None else author
        paused = pause(**target, **rest, author=author, using=options["database"])
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from error
    end = f" until {local(paused.until):%Y-%m-%d %H:%M:%S %Z}" if paused.until else ""
    return _done(options, {"action": "pause", **_pause_json(paused)}, f"Paused {words}{end}.")


@subcommand("resume", "End the pause of a queue, a task, or everything", _add_targets, _QUIET)
def _resume(options: dict[str, Any]) -> Output:
    target, words = _target(options)
    try:
        was_paused = resume(**target, using=options["database"])
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from error
    if not was_paused:
        raise CommandError(f"{words} is not paused. See: manage.py pgqueue pauses".capitalize())
    [(kind, name)] = [(kind, name) for kind, name in target.items() if name]
    found = {"kind": "all", "name": ""} if kind == "everything" else {"kind": kind, "name": name}
    return _done(options, {"action": "resume", **found}, f"Resumed {words}.")


@subcommand("pauses", "List what is paused, by whom, why, and until when")
def _pauses(options: dict[str, Any]) -> Output:
    pauses = Pause.objects.using(options["database"]).filter(IN_FORCE).order_by("kind", "name")
    text = []
    for row in pauses:
        author = f" by {row.author}" if row.author else ""
        end = f", until {date_time(row.until)}" if row.until else ""
        reason = f": {row.reason}" if row.reason else ""
        text.append(f"{row} paused{author} since {date_time(row.paused_at)}{end}{reason}")
    return Output(text or ["Nothing is paused."], [_pause_json(row) for row in pauses])


@subcommand(
    "drain-worker",
    "Ask a worker process to finish its jobs and end; its supervisor starts another one",
    argument("worker", metavar="WORKER", help="its name or its id, as in the list of “pgqueue workers”"),
    argument("--stop", action="store_true", help="end its supervisor, too, with all of its processes"),
    _QUIET,
)
def _drain(options: dict[str, Any]) -> Output:
    alias, replaces = options["database"], not options["stop"]
    worker = find_worker(alias, options["worker"])
    drain_worker(worker, replace=replaces, using=alias)
    if worker.supervisor is None:
        what = f"{worker} to finish its jobs and end"
    elif replaces:
        what = f"{worker} to finish its jobs and end. Another process will replace it"
    else:
        what = f"{worker} and all processes of its supervisor to finish their jobs and end"
    document = {"action": "drain-worker", "worker": worker.pk, "name": str(worker), "replace": replaces}
    return _done(options, document, f"Asked {what}.")
