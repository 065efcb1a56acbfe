"""``manage.py pgqueue pause``, ``pauses``, ``resume`` and ``drain-worker``."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError
from typing import Any

from django.core.management.base import CommandError, OutputWrapper

from ...formatting import date_time, local, plain
from ...jobs.limits import drain_worker, pause, resume
from ...models import Pause
from ...models.queue import IN_FORCE
from .._arguments import moment, seconds, user_name
from .._conditions import find_worker, warn_of_unknown_queues
from .._output import print_json
from .._parser import Subcommand


def _add_targets(parser: ArgumentParser) -> None:
    group = parser.add_mutually_exclusive_group(required=True)
    group.add_argument("--queue", metavar="NAME", help="a queue")
    group.add_argument("--task", metavar="PATH", help="a task, such as shop.tasks.sync")
    group.add_argument("--everything", action="store_true", help="all queues")


def _add_format(parser: ArgumentParser) -> None:
    parser.add_argument("--quiet", action="store_true", help="print nothing but errors")


def _target(options: dict[str, Any]) -> dict[str, Any]:
    """Return the target as arguments of ``pause()`` and ``resume()``."""
    return {name: options.get(name) for name in ("queue", "task", "everything")}


def _words(options: dict[str, Any]) -> str:
    """Return the target in words."""
    if options.get("queue"):
        return f"the queue {options['queue']}"
    return f"the task {options['task']}" if options.get("task") else "everything"


def _tell(stdout: OutputWrapper, options: dict[str, Any], document: dict[str, Any], text: str) -> None:
    """Print what was done."""
    if options.get("json"):
        print_json(stdout, {"database": options["database"], **document})
    elif not options.get("quiet"):
        stdout.write(text)


def _pause_as_json(row: Pause) -> dict[str, Any]:
    names = ("kind", "name", "reason", "author", "paused_at", "until")
    return {name: getattr(row, name) for name in names}


def _add_pause(parser: ArgumentParser) -> None:
    _add_targets(parser)
    parser.add_argument("--reason", default="", metavar="TEXT", help="why, for others to read")
    parser.add_argument("--author", metavar="NAME", help="who (default: your user name)")
    _add_format(parser)
    end = parser.add_mutually_exclusive_group()
    end.add_argument(
        "--until", type=moment, metavar="TIME", help="when it ends by itself, such as 2026-11-23T18:00"
    )
    end.add_argument(
        "--for",
        dest="duration",
        type=seconds(),
        metavar="DURATION",
        help="for how long, such as 90s, 30m, 2h or 1d",
    )


def _pause(options: dict[str, Any], stdout: OutputWrapper) -> None:
    alias = options["database"]
    if options.get("queue"):
        warn_of_unknown_queues(alias, "--queue", [options["queue"]])
    author, length = options.get("author"), options.get("duration")
    try:
        paused = pause(
            **_target(options),
            reason=options.get("reason") or "",
            author=user_name() if author is None else author,
            until=options.get("until"),
            duration=None if length is None else seconds()(length),
            using=alias,
        )
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from error
    end = f" until {local(paused.until):%Y-%m-%d %H:%M:%S %Z}" if paused.until else ""
    document = {"action": "pause", **_pause_as_json(paused)}
    _tell(stdout, options, document, f"Paused {_words(options)}{end}.")


def _resume(options: dict[str, Any], stdout: OutputWrapper) -> None:
    try:
        was_paused = resume(**_target(options), using=options["database"])
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from error
    if not was_paused:
        raise CommandError(f"{_words(options)} is not paused. See: manage.py pgqueue pauses".capitalize())
    [(kind, name)] = [(kind, name) for kind, name in _target(options).items() if name]
    found = {"kind": "all", "name": ""} if kind == "everything" else {"kind": kind, "name": name}
    _tell(stdout, options, {"action": "resume", **found}, f"Resumed {_words(options)}.")


def _add_resume(parser: ArgumentParser) -> None:
    _add_targets(parser)
    _add_format(parser)


def _pauses(options: dict[str, Any], stdout: OutputWrapper) -> None:
    pauses = Pause.objects.using(options["database"]).filter(IN_FORCE).order_by("kind", "name")
    if options.get("json"):
        print_json(stdout, [_pause_as_json(row) for row in pauses])
        return
    for row in pauses:
        author = f" by {plain(row.author)}" if row.author else ""
        end = f", until {date_time(row.until)}" if row.until else ""
        reason = f": {plain(row.reason)}" if row.reason else ""
        stdout.write(f"{plain(str(row))} paused{author} since {date_time(row.paused_at)}{end}{reason}")
    if not pauses:
        stdout.write("Nothing is paused.")


def _add_drain(parser: ArgumentParser) -> None:
    parser.add_argument(
        "worker", metavar="WORKER", help="its name or its id, as in the list of “pgqueue workers”"
    )
    parser.add_argument(
        "--stop", action="store_true", help="end its supervisor, too, with all of its processes"
    )
    _add_format(parser)


def _drain(options: dict[str, Any], stdout: OutputWrapper) -> None:
    alias, replaces = options["database"], not options.get("stop")
    worker = find_worker(alias, options["worker"])
    drain_worker(worker, replace=replaces, using=alias)
    if worker.supervisor is None:
        what = f"{worker} to finish its jobs and end"
    elif replaces:
        what = f"{worker} to finish its jobs and end. Another process will replace it"
    else:
        what = f"{worker} and all processes of its supervisor to finish their jobs and end"
    document = {"action": "drain-worker", "worker": worker.pk, "name": str(worker), "replace": replaces}
    _tell(stdout, options, document, f"Asked {what}.")


SUBCOMMANDS = [
    Subcommand("pause", "Pause a queue, a task, or everything; running jobs finish", _add_pause, _pause),
    Subcommand("resume", "End the pause of a queue, a task, or everything", _add_resume, _resume),
    Subcommand("pauses", "List what is paused, by whom, why, and until when", None, _pauses),
    Subcommand(
        "drain-worker",
        "Ask a worker process to finish its jobs and end; its supervisor starts another one",
        _add_drain,
        _drain,
    ),
]
