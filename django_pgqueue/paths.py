"""Import a task by its path, and check that the path of a task leads back to it."""

from __future__ import annotations

from typing import Any

from django.utils.module_loading import import_string

from .compat import DjangoTask, InvalidTask
from .exceptions import UnknownTask

__all__ = ["check_path", "import_task"]


def import_task(path: str) -> DjangoTask[..., Any]:
    """Return the task at `path`, ours or Django's. Raise UnknownTask, with the failed import as its cause."""
    try:
        found = import_string(path)
    except (Exception, SystemExit) as error:  # whatever the module raises while it is imported
        raise UnknownTask(f"no task {path!r}: {type(error).__qualname__}: {error}") from error
    if isinstance(found, DjangoTask):
        return found
    raise UnknownTask(
        f"{path!r} is not a task (its type is {type(found).__qualname__}). Decorate the function with @task."
    )


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
        what = (
            "another task"
            if isinstance(found, DjangoTask)
            else f"an object of type {type(found).__qualname__}"
        )
        raise InvalidTask(
            f"{path} leads to {what}, not to this task, so no worker could run it. A task must have the "
            f"name of its function: write @task above def {task.func.__name__}, as the outermost decorator."
        )
