"""``manage.py pgqueue schedules``: list, show, pause, resume and run schedules."""

from __future__ import annotations

import getpass
from argparse import SUPPRESS, ArgumentParser
from typing import TYPE_CHECKING, Any

from django.core.management.base import CommandError
from django.utils.translation import gettext as _

from ... import schedules
from ...exceptions import InvalidKey, JobExists, UniqueKeyError
from ...models import Schedule
from ...schedules import board, words
from ...schedules.control import require
from .. import _schedule_texts as texts
from .._output import plain, print_json
from .._subcommands import accept_options

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.core.management.base import OutputWrapper

NAME = "schedules"
HELP = "List the schedules, show one of them, pause or resume it, or run it now"


def add_arguments(parser: ArgumentParser) -> None:
    """Add the actions. Without one, the schedules are listed."""
    json_text = "print the list or the schedule as JSON"
    actions = parser.add_subparsers(dest="action", metavar="ACTION", title="actions (default: list)")
    for name, text in (
        ("list", "list all schedules"),
        ("show", f"show a schedule with its next {texts.NEXT_RUNS} runs"),
        ("pause", "do not run it until it is resumed"),
        ("resume", "end the pause; what it has missed is not run"),
        ("run", "enqueue one job of it now"),
    ):
        action = actions.add_parser(name, help=text, formatter_class=parser.formatter_class)
        if name != "list":
            action.add_argument("name", metavar="NAME", help="the name of the schedule")
        if name == "pause":
            action.add_argument("--reason", default="", metavar="TEXT", help="why, for others to read")
            action.add_argument("--by", default=None, metavar="NAME", help="who (default: your user name)")
        if name in {"list", "show"}:
            action.add_argument("--json", action="store_true", default=SUPPRESS, help=json_text)
        accept_options(action, parser)
    parser.add_argument("--json", action="store_true", help=json_text)


def run(options: dict[str, Any], stdout: OutputWrapper) -> None:
    """Do what the action says."""
    action: Callable[[dict[str, Any], OutputWrapper], None] = _ACTIONS[options.get("action") or "list"]
    try:
        action(options, stdout)
    except (Schedule.DoesNotExist, JobExists, InvalidKey, UniqueKeyError) as error:
        raise CommandError(str(error)) from error


def _list(options: dict[str, Any], stdout: OutputWrapper) -> None:
    alias = options["database"]
    rows = list(board.with_clock(Schedule.objects.using(alias)).order_by("name"))
    board.add_last_ticks(alias, rows)
    if options["json"]:
        print_json(stdout, [texts.as_json(row) for row in rows])
    else:
        stdout.write(texts.listing(alias, rows))


def _show(options: dict[str, Any], stdout: OutputWrapper) -> None:
    schedule = _find(options)
    alias = options["database"]
    if options["json"]:
        print_json(stdout, texts.as_json(schedule))
    else:
        stdout.write(texts.details(schedule, board.last_ticks(alias, schedule, texts.LAST_TICKS)))


def _pause(options: dict[str, Any], stdout: OutputWrapper) -> None:
    name, alias = options["name"], options["database"]
    by = options["by"] if options["by"] is not None else _user()
    if schedules.pause(name, reason=options["reason"], by=by, using=alias):
        stdout.write(_("%(name)s is paused.") % {"name": name})
    else:
        note = words.pause_note(_find(options))
        text = _("%(name)s was already paused") % {"name": name}
        stdout.write(plain(text + (f" ({note})." if note else ".")))


def _resume(options: dict[str, Any], stdout: OutputWrapper) -> None:
    name = options["name"]
    if schedules.resume(name, using=options["database"]):
        time = texts.next_run(_find(options))
        stdout.write(_("%(name)s is resumed. Next run: %(time)s.") % {"name": name, "time": time})
    else:
        stdout.write(_("%(name)s was not paused.") % {"name": name})


def _run(options: dict[str, Any], stdout: OutputWrapper) -> None:
    job = schedules.run_now(options["name"], using=options["database"])
    if job.enqueue_outcome == "existing":
        stdout.write(_("No job is enqueued: job %(id)d has the unique key of the schedule.") % {"id": job.pk})
        return
    text = _("Job %(id)d of %(task)s is enqueued in the queue %(queue)s.")
    stdout.write(plain(text % {"id": job.pk, "task": job.task_path, "queue": job.queue_name}))


_ACTIONS = {"list": _list, "show": _show, "pause": _pause, "resume": _resume, "run": _run}


def _find(options: dict[str, Any]) -> Any:
    name, alias = options["name"], options["database"]
    require(name, alias)
    schedule = board.with_clock(Schedule.objects.using(alias)).get(pk=name)
    board.add_last_ticks(alias, [schedule])
    return schedule


def _user() -> str:
    try:
        return getpass.getuser()
    except (ImportError, KeyError, OSError):  # the user has no name, as in some containers
        return ""
