"""The path of a task: what an import of it finds, and whether that is the task itself."""

from __future__ import annotations

from typing import Any

from django.utils.module_loading import import_string

from .compat import DjangoTask, InvalidTask
from .exceptions import UnknownTask

__all__ = ["check_path", "import_task"]


def import_task(path: str) -> DjangoTask[..., Any]:
    """The task at `path`, of ours or Django's. Raises UnknownTask, with the failed import as its cause."""
    try:
        found = import_string(path)
    except (Exception, SystemExit) as error:  # whatever the module raises while it is imported
        raise UnknownTask(f"no task {path!r}: {type(error).__qualname__}: {error}") from error
    if isinstance(found, DjangoTask):
        return found
    raise UnknownTask(f"{path!r} is not a task but a {type(found).__qualname__}: decorate it with @task")


def check_path(task: DjangoTask[..., Any]) -> None:
    """Raise InvalidTask unless importing the path of `task` leads to its function."""
    path = task.module_path
    if task.func.__module__ == "__main__":
        raise InvalidTask(f"{path}: a worker cannot import __main__. Move the task to a module of an app.")
    try:
        found = import_string(path)
    except ImportError as error:
        raise InvalidTask(
            f"{path} cannot be imported by a worker: {error}. A task must have the name of its function: "
            f"write @task above def {task.func.__name__}."
        ) from error
    if not isinstance(found, DjangoTask) or found.func is not task.func:
        what = "another task" if isinstance(found, DjangoTask) else f"a {type(found).__qualname__}"
        raise InvalidTask(
            f"{path} leads to {what}, not back to this task, so no worker could run it. A task must have the "
            f"name of its function: write @task above def {task.func.__name__}, outermost."
        )
