"""``manage.py pgqueue schedules``: list, show, pause, resume and run schedules; and ``tasks``.

All times are in Django's current time zone, which the output names.
"""

from __future__ import annotations

from argparse import SUPPRESS, ArgumentParser
from collections.abc import Iterator
from datetime import datetime
from inspect import iscoroutinefunction
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError
from django.utils import timezone, translation

from ...exceptions import InvalidKey, JobExists
from ...explanation import schedules as words
from ...formatting import date_time, did_you_mean, how_soon, number, period, plain
from ...models import Schedule, ScheduleRun
from ...redaction import redact_call
from ...schedules.cron import zone
from ...schedules.declare import declared_schedules, schedules_in_settings
from ...tasks.keys import RateLimit
from ...tasks.paths import discover
from ...tasks.registry import known_tasks, source_place
from ...tasks.task import Task
from .._arguments import user_name
from .._output import Block, Columns, Output, Table
from .._parser import accept_options, argument, subcommand
from .operating import AUTHOR, REASON

NEXT_RUNS = 5
LAST_RUNS = 5
_NAME = argument("name", metavar="NAME", help="the name of the schedule")
_JSON = argument(
    "--json", action="store_true", default=SUPPRESS, help="print the list or the schedule as JSON"
)


def _add_actions(parser: ArgumentParser) -> None:
    """Add the actions. Without one, the schedules are listed."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", title="actions (default: list)")
    for name, text, *arguments in (
        ("list", "list all schedules", _JSON),
        ("show", f"show a schedule with its next {NEXT_RUNS} runs", _NAME, _JSON),
        ("pause", "do not run it until it is resumed", _NAME, REASON, AUTHOR),
        ("resume", "end the pause; what it has missed is not run", _NAME),
        ("enqueue", "enqueue one job of it now", _NAME),
    ):
        action = actions.add_parser(name, help=text, formatter_class=parser.formatter_class)
        for add in arguments:
            add(action)
        accept_options(action, parser)
    _JSON(parser)


@subcommand(
    "schedules", "List the schedules, show one, pause or resume it, or enqueue a job of it",
    _add_actions, has_json=False, shards="list",
)  # fmt: skip
def _schedules(options: dict[str, Any]) -> Output:
    action = options["action"] or "list"
    try:
        return _list(options["database"]) if action == "list" else _ACTIONS[action](_find(options), options)
    except (JobExists, InvalidKey) as error:
        raise CommandError(str(error)) from error


def _list(alias: str) -> Output:
    rows = list(words.with_clock(Schedule.objects.using(alias)).order_by("name"))
    words.add_last_runs(alias, rows)
    head = [f"Times are in {timezone.get_current_timezone_name()}.", ""] if rows else []
    empty = "There is no schedule. A worker that starts stores the schedules of the code."
    return Output([*head, Table.of(_SCHEDULES, rows, empty=empty)], [_json(row) for row in rows])


_SCHEDULES: Columns = {
    "Schedule": lambda row: row.name,
    "State": lambda row: _state(row),
    "Next run": lambda row: "cannot run" if _runs(row)[1] else _next_run(row),
    "Last run": lambda row: _run_line(row.last),
    "When": lambda row: _when(row),
    "Task": lambda row: row.task_path,
    "Declared in": words.origin,
    "Problem": lambda row: _runs(row)[1],
}


def _show(schedule: Any, options: dict[str, Any]) -> Output:
    known = {
        "When": _when(schedule),
        "Next run": _next_run(schedule),
        "Last run": _run_line(schedule.last),
        "Task": words.call(schedule),
        "Declared in": words.origin(schedule),
        "Queue": schedule.queue_name or "",
        "Priority": "" if schedule.priority is None else str(schedule.priority),
        "Missed": str(schedule.get_catch_up_display()),
        "Overlap": str(schedule.get_overlap_display()),
        "Jitter": period(schedule.jitter) if schedule.jitter else "",
    }
    runs = words.last_runs(options["database"], schedule, LAST_RUNS)
    last = ["", "Last runs:", *(f"  {_run_line(each)}" for each in runs)] if runs else []
    head: list[Block] = [f"{schedule.name}: {_state(schedule)}", known, ""]
    return Output([*head, *_next_runs(schedule), *last], _json(schedule))


def _pause(schedule: Any, options: dict[str, Any]) -> Output:
    author = options["author"] if options["author"] is not None else user_name()
    if not schedule.pause(reason=options["reason"], author=author):
        note = words.pause_note(_find(options))
        raise CommandError(plain(f"{schedule.name} was already paused{f' ({note})' if note else ''}."))
    return Output([f"{schedule.name} is paused."])


def _resume(schedule: Any, options: dict[str, Any]) -> Output:
    if not schedule.resume():
        raise CommandError(plain(f"{schedule.name} was not paused."))
    return Output([f"{schedule.name} is resumed. Next run: {_next_run(_find(options))}."])


def _enqueue(schedule: Any, _: dict[str, Any]) -> Output:
    # The output of commands is in English, but the language may travel with a job.
    with translation.override(settings.LANGUAGE_CODE):
        job = schedule.enqueue()
    if job.enqueue_outcome == "existing":
        return Output([f"No job is enqueued: job {job.pk} has the unique key of the schedule."])
    return Output([f"Job {job.pk} of {job.task_path} is enqueued in the queue {job.queue_name}."])


_ACTIONS = {"show": _show, "pause": _pause, "resume": _resume, "enqueue": _enqueue}


def _find(options: dict[str, Any]) -> Any:
    name, alias = options["name"], options["database"]
    schedules = Schedule.objects.using(alias)
    found = words.with_clock(schedules).filter(pk=name).first()
    if found is None:
        hint = did_you_mean(name, schedules.values_list("name", flat=True)[:1000])
        raise CommandError(f"There is no schedule {name!r} in the database {alias!r}. {hint}".rstrip())
    words.add_last_runs(alias, [found])
    return found


def _state(schedule: Any) -> str:
    note, changes = words.state_note(schedule), words.changes(schedule)
    changed = f", changed in the admin: {', '.join(changes)}" if changes else ""
    return f"{words.state(schedule)[1]}{f' ({note})' if note else ''}{changed}"


def _when(schedule: Any) -> str:
    timing = words.timing(schedule)
    if schedule.cron is None:
        return timing
    shown = "" if timing == schedule.cron else f" ({schedule.cron})"
    return f"{timing}{shown}, {schedule.timezone}"


def _next_run(schedule: Any) -> str:
    """Return when a schedule runs next, and how soon."""
    runs, problem = _runs(schedule)
    if problem or not schedule.is_active:
        return problem or "-"
    return f"{date_time(runs[0])}, {how_soon(runs[0] - schedule.now)}"


def _runs(schedule: Any, count: int = 1) -> tuple[list[datetime], str]:
    """Return the next runs; none if it cannot run, and why."""
    try:
        return words.next_runs(schedule, count), ""
    except ValueError as error:
        return [], str(error)


def _next_runs(schedule: Any) -> Iterator[str]:
    """Yield the next runs, also in the schedule's own time zone if its clock shows another time."""
    runs, problem = _runs(schedule, NEXT_RUNS)
    if problem:
        yield f"It cannot run: {problem}"
        return
    yield "Next runs:" if schedule.is_active else f"Next runs, if it were not {words.state(schedule)[1]}:"
    for run in runs:
        there = f"{run.astimezone(zone(schedule.timezone)):%Y-%m-%d %H:%M:%S}"
        also = "" if date_time(run) == there else f"   {there} {schedule.timezone}"
        yield f"  {date_time(run)}  {how_soon(run - schedule.now):<14}{also}".rstrip()


def _run_line(run: ScheduleRun | None) -> str:
    if run is None:
        return "-"
    job = "" if run.job_id is None else f" (job {run.job_id})"
    return f"{date_time(run.run_at)}, {run.get_outcome_display()}{job}"


def _json(schedule: Any) -> dict[str, Any]:
    last, (runs, problem) = schedule.last, _runs(schedule)
    args, kwargs = redact_call(schedule.args, schedule.kwargs, schedule.task_path)
    columns = (
        "name", "cron", "every", "timezone", "paused_at", "pause_author", "pause_reason", "retired_at",
        "source", "declared_by",
    )  # fmt: skip
    return {
        **{name: getattr(schedule, name) for name in columns},
        "task": schedule.task_path,
        "args": args,
        "kwargs": kwargs,
        "when": words.timing(schedule),
        "state": words.state(schedule)[0],
        "next_run_at": runs[0] if runs and schedule.is_active else None,
        "problem": problem,
        "last_run": last and {"run_at": last.run_at, "outcome": last.outcome, "job": last.job_id},
        "overridden": words.changes(schedule),
    }


#: The options of a task that the list shows if they are not the default.
_POLICY = (
    "max_attempts", "timeout", "backoff", "retry_on", "fail_on", "expires_after", "on_lost", "atomic",
    "unique", "concurrency", "rate_limit", "group", "database", "takes_context",
)  # fmt: skip


@subcommand("tasks", "List the tasks that the apps declare, with their queues and their policies")
def _tasks(options: dict[str, Any]) -> Output:
    """Return the tasks. That a module cannot be imported is an error."""
    failed = discover(again=True)
    schedules: dict[str, list[str]] = {}  # the names that code and settings declare
    for name, declaration in sorted({**schedules_in_settings()[0], **declared_schedules()}.items()):
        schedules.setdefault(declaration.task_path, []).append(name)
    document: list[dict[str, Any]] = []
    for path, task in known_tasks().items():
        row: dict[str, Any] = {
            "path": path,
            "declared_in": source_place(task),
            "queue_name": task.queue_name,
            "priority": task.priority,
            "async": iscoroutinefunction(task.func),
            "policy": _policy(task),
            "schedules": schedules.get(path, []),
        }
        document.append(row)
    empty = "No app declares a task. Tasks are found in the modules that TASK_MODULES names."
    table = Table.of(_TASKS, document, right={2}, empty="" if failed else empty)
    errors = (
        f"{name} cannot be imported, so its tasks are missing: {type(error).__name__}: {error}"
        for name, error in failed.items()
    )
    return Output([table], document, error="\n".join(errors))


_TASKS: Columns = {
    "Task": lambda row: f"{'async ' if row['async'] else ''}{row['path']}",
    "Queue": lambda row: row["queue_name"],
    "Priority": lambda row: number(row["priority"]),
    "Policy": lambda row: ", ".join(f"{name}={value}" for name, value in row["policy"].items()) or "-",
    "Schedules": lambda row: ", ".join(row["schedules"]) or "-",
    "Declared in": lambda row: row["declared_in"],
}


def _policy(task: Task[..., Any]) -> dict[str, str]:
    default = type(task).__dataclass_fields__
    values = {name: getattr(task, name) for name in _POLICY}
    return {name: _text(value) for name, value in values.items() if value != default[name].default}


def _text(value: Any) -> str:
    if isinstance(value, RateLimit):
        return f"{value.limit} in {value.per}"
    if isinstance(value, type) or callable(value):
        return str(getattr(value, "__qualname__", value))
    if isinstance(value, tuple):
        return f"[{', '.join(map(_text, value))}]"
    return str(value)
