"""Find the tasks of all apps: import the module ``tasks`` of each, or those that TASK_MODULES names.

Nothing is imported while apps load. Whoever needs all tasks calls `known_tasks`: the pages of the admin that
suggest tasks, and the commands. A module that raises is logged once. It does not affect the others, nor the
process. Workers do not depend on this: they import the module of a task when they run its first job.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Iterator
from importlib import import_module
from inspect import getsourcefile, unwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from django.apps import AppConfig, apps
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from django.utils.module_loading import module_has_submodule

from .. import conf
from .routing import our_aliases, resolve
from .task import declared_tasks

if TYPE_CHECKING:
    from .task import Task

__all__ = [
    "BACKLOG_WINDOW",
    "KEPT_QUEUES",
    "declared_queues",
    "discover",
    "known_tasks",
    "queues_in_use",
    "source_place",
    "task_modules",
]


logger = logging.getLogger(__name__)

_failed: dict[str, BaseException] = {}
"""The modules that could not be imported in this process. They are not tried again: a page would be slow."""


def task_modules(configs: Iterable[AppConfig] | None = None) -> Iterator[str]:
    """Yield the modules that exist and may declare tasks, of some apps or of all."""
    for config in apps.get_app_configs() if configs is None else configs:
        for name in conf.current().task_modules:
            if config.module is not None and config.name != "django_pgqueue" and _exists(config, name):
                yield f"{config.name}.{name}"


def discover(*, again: bool = False) -> dict[str, BaseException]:
    """Import these modules, and return those that cannot be imported, with what they raise.

    ``again``: try also those that have failed before.
    """
    failed = {}
    for name in task_modules():
        if name not in _failed or again:
            try:
                import_module(name)
            except (Exception, SystemExit) as error:  # whatever the module raises
                _failed[name] = error
                logger.warning("%s cannot be imported: %s: %s", name, type(error).__name__, error)
            else:
                _failed.pop(name, None)
        if name in _failed:
            failed[name] = _failed[name]
    return failed


def known_tasks() -> dict[str, Task[..., Any]]:
    """Return all tasks of this package that this process can find, by their paths."""
    discover()
    return {task.module_path: task for task in sorted(declared_tasks(), key=lambda task: task.module_path)}


def _exists(config: AppConfig, name: str) -> bool:
    """Return whether an app has a module. The name may have dots."""
    package: Any = config.module
    *parents, last = name.split(".")
    for parent in parents:
        if not module_has_submodule(package, parent):
            return False
        try:
            package = import_module(f"{package.__name__}.{parent}")
        except (Exception, SystemExit):  # what contains it: the import of the module itself tells
            return True
    return module_has_submodule(package, last)


def source_place(task: Task[..., Any]) -> str:
    """Return the file and the line of the function of a task, relative to the project if it is below it."""
    function: Any = unwrap(task.func)
    file = Path(getsourcefile(function) or function.__code__.co_filename)
    base = getattr(settings, "BASE_DIR", None)
    folders = [Path(folder) for folder in (base, Path.cwd(), *sys.path) if folder]
    inside = [
        file.relative_to(folder)
        for folder in folders
        if len(folder.parts) > 1 and file.is_relative_to(folder)
    ]
    return f"{inside[0] if inside else file}:{function.__code__.co_firstlineno}"


# ----------------------------------------------------------------------------
# Find the names of queues: those in tasks and settings, and those that the database contains.
#
# Nothing here reads the history of jobs.

BACKLOG_WINDOW = 5_000  # jobs to read at each end of the backlog, to find queues whose jobs are all blocked

#: Statements that read ``FROM kept``, the queues with kept jobs, begin with this.
KEPT_QUEUES = Path(__file__).with_name("kept_queues.sql").read_text(encoding="utf-8")
_IN_USE = KEPT_QUEUES + Path(__file__).with_name("queue_names.sql").read_text(encoding="utf-8")


def queues_in_use(alias: str) -> set[str]:
    """Return the queues that have settings, live jobs or kept failed jobs, or that ran jobs within a day."""
    with connections[alias].cursor() as cursor:
        cursor.execute(_IN_USE, {"window": BACKLOG_WINDOW})
        return {name for (name,) in cursor.fetchall()}


def declared_queues() -> set[str]:
    """Return the queues of the tasks of all apps, and those of QUEUES in TASKS."""
    found = {task.queue_name for task in known_tasks().values()}
    for alias in our_aliases():
        try:
            found.update(resolve(alias).queues)
        except ImproperlyConfigured:  # a system check reports this
            continue
    return found
