"""``manage.py pgqueue tasks``: list the tasks that the apps declare."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.core.management.base import CommandError

from ...discovery import discover, known_tasks
from .. import _task_texts as texts
from .._output import print_json

if TYPE_CHECKING:
    from argparse import ArgumentParser

    from django.core.management.base import OutputWrapper

NAME = "tasks"
HELP = "List the tasks that the apps declare, with their queues and their policies"


def add_arguments(parser: ArgumentParser) -> None:
    """Add the format."""
    parser.add_argument("--json", action="store_true", help="print the list as JSON")


def run(options: dict[str, Any], stdout: OutputWrapper) -> None:
    """Print the tasks, and fail if a module cannot be imported."""
    failed = discover(again=True)
    tasks, schedules = known_tasks(), texts.schedules_by_task()
    if options.get("json"):
        found = [texts.as_json(task, schedules.get(path, [])) for path, task in tasks.items()]
        print_json(stdout, found)
    else:
        for path, task in tasks.items():
            stdout.write(texts.details(task, schedules.get(path, [])))
        if not tasks and not failed:
            stdout.write("No app declares a task. Tasks are found in the modules that TASK_MODULES names.")
    if failed:
        raise CommandError(
            "\n".join(
                f"{name} cannot be imported, so its tasks are missing: {type(error).__name__}: {error}"
                for name, error in failed.items()
            )
        )
