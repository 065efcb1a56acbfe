"""``manage.py pgqueue schedules``: list, show, pause, resume and run schedules."""

from __future__ import annotations

import getpass
import shutil
import textwrap
from argparse import SUPPRESS, ArgumentParser
from datetime import datetime, timedelta
from difflib import get_close_matches
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, NamedTuple

from django.core.management.base import CommandError
from django.utils.translation import gettext as _

from ...exceptions import InvalidKey, JobExists
from ...formatting import counted, period
from ...models import Schedule
from ...postgres.clock import local
from ...redaction import redact_call
from ...schedules import words
from ...schedules import words as board
from ...schedules.cron import zone
from .._output import plain, print_json
from .._subcommands import accept_options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from django.core.management.base import OutputWrapper

    from ...models import ScheduleRun

NAME = "schedules"
HELP = "List the schedules, show one of them, pause or resume it, or enqueue a job of it"


def add_arguments(parser: ArgumentParser) -> None:
    """Add the actions. Without one, the schedules are listed."""
    json_text = "print the list or the schedule as JSON"
    actions = parser.add_subparsers(dest="action", metavar="ACTION", title="actions (default: list)")
    for name, text in (
        ("list", "list all schedules"),
        ("show", f"show a schedule with its next {NEXT_RUNS} runs"),
        ("pause", "do not run it until it is resumed"),
        ("resume", "end the pause; what it has missed is not run"),
        ("enqueue", "enqueue one job of it now"),
    ):
        action = actions.add_parser(name, help=text, formatter_class=parser.formatter_class)
        if name != "list":
            action.add_argument("name", metavar="NAME", help="the name of the schedule")
        if name == "pause":
            action.add_argument("--reason", default="", metavar="TEXT", help="why, for others to read")
            action.add_argument(
                "--author", default=None, metavar="NAME", help="who (default: your user name)"
            )
        if name in {"list", "show"}:
            action.add_argument("--json", action="store_true", default=SUPPRESS, help=json_text)
        accept_options(action, parser)
    parser.add_argument("--json", action="store_true", help=json_text)


def run(options: dict[str, Any], stdout: OutputWrapper) -> None:
    """Do what the action says."""
    action: Callable[[dict[str, Any], OutputWrapper], None] = _ACTIONS[options.get("action") or "list"]
    try:
        action(options, stdout)
    except (Schedule.DoesNotExist, JobExists, InvalidKey) as error:
        raise CommandError(str(error)) from error


def _list(options: dict[str, Any], stdout: OutputWrapper) -> None:
    alias = options["database"]
    rows = list(board.with_clock(Schedule.objects.using(alias)).order_by("name"))
    board.add_last_runs(alias, rows)
    if options["json"]:
        print_json(stdout, [schedule_as_json(row) for row in rows])
    else:
        stdout.write(schedule_listing(alias, rows))


def _show(options: dict[str, Any], stdout: OutputWrapper) -> None:
    schedule = _find(options)
    alias = options["database"]
    if options["json"]:
        print_json(stdout, schedule_as_json(schedule))
    else:
        stdout.write(schedule_details(schedule, board.last_runs(alias, schedule, LAST_RUNS)))


def _pause(options: dict[str, Any], stdout: OutputWrapper) -> None:
    name, schedule = options["name"], _find(options)
    author = options["author"] if options["author"] is not None else _user()
    if not schedule.pause(reason=options["reason"], author=author):
        note = words.pause_note(_find(options))
        text = _("%(name)s was already paused") % {"name": name}
        raise CommandError(plain(text + (f" ({note})." if note else ".")))
    stdout.write(_("%(name)s is paused.") % {"name": name})


def _resume(options: dict[str, Any], stdout: OutputWrapper) -> None:
    name = options["name"]
    if not _find(options).resume():
        raise CommandError(_("%(name)s was not paused.") % {"name": name})
    time = next_run(_find(options))
    stdout.write(_("%(name)s is resumed. Next run: %(time)s.") % {"name": name, "time": time})


def _enqueue(options: dict[str, Any], stdout: OutputWrapper) -> None:
    job = _find(options).enqueue()
    if job.enqueue_outcome == "existing":
        stdout.write(_("No job is enqueued: job %(id)d has the unique key of the schedule.") % {"id": job.pk})
        return
    text = _("Job %(id)d of %(task)s is enqueued in the queue %(queue)s.")
    stdout.write(plain(text % {"id": job.pk, "task": job.task_path, "queue": job.queue_name}))


_ACTIONS = {"list": _list, "show": _show, "pause": _pause, "resume": _resume, "enqueue": _enqueue}


def _find(options: dict[str, Any]) -> Any:
    name, alias = options["name"], options["database"]
    schedules = Schedule.objects.using(alias)
    found = board.with_clock(schedules).filter(pk=name).first()
    if found is None:
        near = get_close_matches(name, schedules.values_list("name", flat=True)[:1000], n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise Schedule.DoesNotExist(f"There is no schedule {name!r} in the database {alias!r}.{hint}")
    board.add_last_runs(alias, [found])
    return found


def _user() -> str:
    try:
        return getpass.getuser()
    except (ImportError, KeyError, OSError):  # the user has no name, as in some containers
        return ""


# ----------------------------------------------------------------------------
# Schedules on a terminal: a table if it is wide, otherwise a few lines for each; and as JSON.
#
# All times are in Django's current time zone, which the output names.

NEXT_RUNS = 5
LAST_RUNS = 5
_NARROW, _WIDE = 80, 160
_INDENT = " " * 15


class Row(NamedTuple):
    """A schedule in the list."""

    name: str
    state: str
    when: str
    next: str
    last: str
    task: str
    source: str

    @classmethod
    def of(cls, schedule: Any) -> Row:
        """Describe a schedule ``with_clock`` and with its last run."""
        return cls(
            schedule.name,
            _state(schedule),
            _when(schedule),
            next_run(schedule),
            _run_line(schedule.last),
            schedule.task_path,
            words.origin(schedule),
        )


def schedule_listing(alias: str, schedules: Sequence[Any]) -> str:
    """Return the list, for the width of the terminal."""
    where = f'in the database "{alias}"'
    if not schedules:
        return f"There are no schedules {where}."
    rows = [Row.of(schedule) for schedule in schedules]
    width = _width()
    lines = _blocks(rows, width) if width < _WIDE else _table(rows, width)
    head = f"{counted(len(rows), 'schedule')} {where}. Times are in {words.zone_name()}."
    return "\n".join([head, "", *map(plain, lines)])


def schedule_details(schedule: Any, runs: Sequence[ScheduleRun]) -> str:
    """Return everything about one schedule ``with_clock`` and with its last run."""
    row, width = Row.of(schedule), _width()
    lines = [
        *_block(row._replace(task=words.call(schedule)), width),
        *_facts(_definition(schedule), width),
        "",
        *_runs(schedule),
    ]
    if runs:
        lines += ["", "Last runs:", *(f"  {_run_line(run)}" for run in runs)]
    return "\n".join(map(plain, lines))


def next_run(schedule: Any) -> str:
    """Return when a schedule ``with_clock`` runs next, and how soon."""
    if not schedule.is_active:
        return "-"
    try:
        [run] = board.next_runs(schedule, 1)
    except ValueError as error:
        return str(error)
    return f"{_clock(local(run))}, {_how_soon(run - schedule.now)}"


def schedule_as_json(schedule: Any) -> dict[str, Any]:
    """Return a schedule ``with_clock`` and with its last run, with times in ISO format."""
    last, runs, problem = schedule.last, [], ""
    args, kwargs = redact_call(schedule.args, schedule.kwargs, schedule.task_path)
    try:
        runs = board.next_runs(schedule, 1)
    except ValueError as error:
        problem = str(error)
    return {
        "name": schedule.name,
        "task": schedule.task_path,
        "args": args,
        "kwargs": kwargs,
        "when": words.timing(schedule),
        "cron": schedule.cron,
        "every": None if schedule.every is None else schedule.every.total_seconds(),
        "timezone": schedule.timezone,
        "state": words.state(schedule)[0],
        "paused_at": _iso(schedule.paused_at),
        "pause_author": schedule.pause_author,
        "pause_reason": schedule.pause_reason,
        "retired_at": _iso(schedule.retired_at),
        "next_run_at": runs[0].isoformat() if runs and schedule.is_active else None,
        "problem": problem,
        "last_run": None
        if last is None
        else {"run_at": _iso(last.run_at), "outcome": last.outcome, "job": last.job_id},
        "source": schedule.source,
        "declared_by": schedule.declared_by,
        "overridden": words.changes(schedule),
    }


def _width() -> int:
    return max(40, shutil.get_terminal_size((_NARROW, 24)).columns)


def _table(rows: list[Row], width: int) -> list[str]:
    """Return the rows as a table. The widest columns are wrapped until it fits."""
    heads = Row("NAME", "STATE", "WHEN", "NEXT", "LAST", "TASK", "DECLARED IN")
    table = [heads, *rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    while sum(widths) + 2 * (len(widths) - 1) > width:
        widths[widths.index(max(widths))] -= 1
    return [line for row in table for line in _lines(row, widths)]


def _lines(row: Row, widths: list[int]) -> Iterator[str]:
    cells = [textwrap.wrap(text, width) for text, width in zip(row, widths, strict=True)]
    for parts in zip_longest(*cells, fillvalue=""):
        yield "  ".join(map(str.ljust, parts, widths)).rstrip()


def _blocks(rows: list[Row], width: int) -> Iterator[str]:
    for number, row in enumerate(rows):
        if number:
            yield ""
        yield from _block(row, width)


def _block(row: Row, width: int) -> Iterator[str]:
    yield from textwrap.wrap(f"{row.name}: {row.state}", width, subsequent_indent=_INDENT)
    facts = {
        "When": row.when,
        "Next": row.next,
        "Last": row.last,
        "Task": row.task,
        "Declared in": row.source,
    }
    yield from _facts(facts, width)


def _facts(facts: dict[str, str], width: int) -> Iterator[str]:
    for label, text in facts.items():
        yield from textwrap.wrap(f"  {f'{label}:':<13}{text}", width, subsequent_indent=_INDENT)


def _definition(schedule: Schedule) -> dict[str, str]:
    given = {
        "Queue": schedule.queue_name,
        "Priority": None if schedule.priority is None else str(schedule.priority),
        "Missed": str(schedule.get_catch_up_display()),
        "Overlap": str(schedule.get_overlap_display()),
        "Jitter": period(schedule.jitter) if schedule.jitter else None,
    }
    return {label: text for label, text in given.items() if text is not None}


def _runs(schedule: Any) -> Iterator[str]:
    """Yield the next runs, also in the schedule's own time zone if its clock shows another time."""
    try:
        runs = board.next_runs(schedule, NEXT_RUNS)
    except ValueError as error:
        yield f"It cannot run: {error}"
        return
    yield "Next runs:" if schedule.is_active else f"Next runs, if it were not {words.state(schedule)[1]}:"
    own = zone(schedule.timezone)
    for run in runs:
        here, there = local(run), run.astimezone(own)
        also = "" if _clock(here) == _clock(there) else f"   {_clock(there)} {schedule.timezone}"
        yield f"  {_clock(here)}  {_how_soon(run - schedule.now):<14}{also}".rstrip()


def _state(schedule: Schedule) -> str:
    text = words.state(schedule)[1]
    note = words.state_note(schedule)
    if note:
        text += f" ({note})"
    if changed := words.changes(schedule):
        text += ", " + _("changed in the admin: %(fields)s") % {"fields": ", ".join(changed)}
    return text


def _when(schedule: Schedule) -> str:
    text = words.timing(schedule)
    if schedule.cron is None:
        return text
    shown = "" if text == schedule.cron else f" ({schedule.cron})"
    return f"{text}{shown}, {schedule.timezone}"


def _how_soon(ahead: timedelta) -> str:
    if ahead > timedelta(0):
        return _("in %(period)s") % {"period": period(ahead)}
    return _("due for %(period)s") % {"period": period(-ahead)}


def _run_line(run: ScheduleRun | None) -> str:
    if run is None:
        return "-"
    job = "" if run.job_id is None else f" (job {run.job_id})"
    return f"{_clock(local(run.run_at))}, {run.get_outcome_display()}{job}"


def _clock(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S}"


def _iso(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()
