"""Import a task by its path, and check that the path of a task leads back to it.

A path comes from a row, and to import a module is to run it. So only the project's own modules are imported:
those of installed apps, and of the package of the settings. A task in another module is found if something
else has imported this module.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import Any

from django.apps import apps
from django.conf import settings
from django.utils.module_loading import import_string

from ..compat import DjangoTask, InvalidTask, is_task
from ..exceptions import UnknownTask

__all__ = ["check_path", "import_task"]


def import_task(path: str) -> DjangoTask[..., Any]:
    """Return the task at `path`, ours or Django's. Raise UnknownTask, with the failed import as its cause."""
    module = path.rpartition(".")[0]
    if module not in sys.modules and _exists_elsewhere(module):
        raise UnknownTask(
            f"no task {path!r}: the module {module!r} is not imported because of a job. Put its package into "
            "INSTALLED_APPS, or import it in ready() of an app."
        )
    try:
        found = import_string(path)
    except (Exception, SystemExit) as error:  # whatever the module raises while it is imported
        raise UnknownTask(f"no task {path!r}: {type(error).__qualname__}: {error}") from error
    if is_task(found):
        return found
    raise UnknownTask(
        f"{path!r} is not a task (its type is {type(found).__qualname__}). Decorate the function with @task."
    )


def _exists_elsewhere(module: str) -> bool:
    """Return whether a module is in a package that exists, but neither in an installed app nor in the package
    of the settings.
    """
    places = {config.name for config in apps.get_app_configs()}
    if isinstance(own := settings.SETTINGS_MODULE, str):
        places.add(own.partition(".")[0])
    if any(module == place or module.startswith(f"{place}.") for place in places):
        return False
    package = module.partition(".")[0]
    return package in sys.modules or bool(package and find_spec(package))


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
    if not is_task(found) or found.func is not task.func:
        what = "another task" if is_task(found) else f"an object of type {type(found).__qualname__}"
        raise InvalidTask(
            f"{path} leads to {what}, not to this task, so no worker could run it. A task must have the "
            f"name of its function: write @task above def {task.func.__name__}, as the outermost decorator."
        )
