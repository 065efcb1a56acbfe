"""``manage.py pgqueue tasks``: list the tasks that the apps declare."""

from __future__ import annotations

from argparse import ArgumentParser
from inspect import iscoroutinefunction
from typing import Any

from django.core.management.base import CommandError, OutputWrapper

from ...schedules.declare import declared_schedules, schedules_in_settings
from ...tasks.keys import RateLimit
from ...tasks.registry import discover, known_tasks, source_place
from ...tasks.task import Task
from .._output import print_facts, print_json

NAME = "tasks"
HELP = "List the tasks that the apps declare, with their queues and their policies"


def add_arguments(parser: ArgumentParser) -> None:
    """Add the format."""
    parser.add_argument("--json", action="store_true", help="print the list as JSON")


def run(options: dict[str, Any], stdout: OutputWrapper) -> None:
    """Print the tasks, and fail if a module cannot be imported."""
    failed = discover(again=True)
    tasks, schedules = known_tasks(), _schedules_by_task()
    if options["json"]:
        found = [_json(task, schedules.get(path, [])) for path, task in tasks.items()]
        print_json(stdout, found)
    else:
        for path, task in tasks.items():
            stdout.write(f"{'async ' if iscoroutinefunction(task.func) else ''}{path}")
            print_facts(stdout, _facts(task, schedules.get(path, [])))
        if not tasks and not failed:
            stdout.write("No app declares a task. Tasks are found in the modules that TASK_MODULES names.")
    if failed:
        raise CommandError(
            "\n".join(
                f"{name} cannot be imported, so its tasks are missing: {type(error).__name__}: {error}"
                for name, error in failed.items()
            )
        )


#: The options of a task that the list shows if they are not the default.
_POLICY = (
    "max_attempts", "timeout", "backoff", "retry_on", "fail_on", "expires_after", "on_lost", "atomic",
    "unique", "concurrency", "rate_limit", "group", "database", "takes_context",
)  # fmt: skip


def _json(task: Task[..., Any], schedules: list[str]) -> dict[str, Any]:
    return {
        "path": task.module_path,
        "declared_in": source_place(task),
        "queue_name": task.queue_name,
        "priority": task.priority,
        "async": iscoroutinefunction(task.func),
        "policy": _policy(task),
        "schedules": schedules,
    }


def _facts(task: Task[..., Any], schedules: list[str]) -> dict[str, str]:
    policy = _policy(task)
    return {
        "Queue": task.queue_name + (f", priority {task.priority}" if task.priority else ""),
        "Policy": ", ".join(f"{name}={value}" for name, value in policy.items()) or "the defaults",
        "Schedules": ", ".join(schedules),
        "Declared in": source_place(task),
    }


def _schedules_by_task() -> dict[str, list[str]]:
    """Return the names of the schedules that code and settings declare, by the path of their task."""
    found: dict[str, list[str]] = {}
    in_settings, _ = schedules_in_settings()
    for name, declaration in sorted({**in_settings, **declared_schedules()}.items()):
        found.setdefault(declaration.task_path, []).append(name)
    return found


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
