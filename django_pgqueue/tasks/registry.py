"""Find the tasks of all apps, in the modules that TASK_MODULES names (``paths``), and the names of queues.

Nothing here reads the history of jobs, and nothing is imported while apps load. Whoever needs all tasks calls
`known_tasks`: the pages of the admin that suggest tasks, and the commands.
"""

from __future__ import annotations

import sys
from inspect import getsourcefile, unwrap
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from ..postgres import fetch_rows, sql_of
from .paths import discover
from .routing import our_aliases, resolve
from .task import Task, declared_tasks


def known_tasks() -> dict[str, Task[..., Any]]:
    """Return all tasks of this package that this process can find, by their paths."""
    discover()
    return {task.module_path: task for task in sorted(declared_tasks(), key=lambda task: task.module_path)}


def source_place(task: Task[..., Any]) -> str:
    """Return the file and the line of the function of a task, relative to the project if it is below it."""
    function: Any = unwrap(task.func)
    file = Path(getsourcefile(function) or function.__code__.co_filename)
    places = (getattr(settings, "BASE_DIR", None), Path.cwd(), *sys.path)
    folders = [Path(place) for place in places if place]
    base = next((each for each in folders if len(each.parts) > 1 and file.is_relative_to(each)), None)
    return f"{file if base is None else file.relative_to(base)}:{function.__code__.co_firstlineno}"


#: Statements that read ``FROM kept``, the queues with kept jobs, begin with this.
KEPT_QUEUES = sql_of(__file__, "kept_queues")
_IN_USE = KEPT_QUEUES + sql_of(__file__, "queue_names")


def queues_in_use(alias: str) -> set[str]:
    """Return the queues that have settings, live jobs or kept failed jobs, or that ran jobs within a day."""
    return {name for (name,) in fetch_rows(alias, _IN_USE)}


def declared_queues() -> set[str]:
    """Return the queues of the tasks of all apps, and the queues of QUEUES in TASKS."""
    found = {task.queue_name for task in known_tasks().values()}
    for alias in our_aliases():
        try:
            found.update(resolve(alias).queues)
        except ImproperlyConfigured:  # a system check reports this
            continue
    return found
