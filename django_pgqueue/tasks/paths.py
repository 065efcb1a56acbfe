"""What workers import for a job: the task at a path, in the modules that may declare tasks.

A path comes from a row, and to import a module is to run it, so only the modules are imported that
TASK_MODULES names in the installed apps and in the package of the settings, with the modules in them if they
are packages. A task in another module is found if one of these has imported this module, or something else
has, such as ``ready()`` of an app.

A module that raises is logged once. It does not affect the others, nor the process.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from django.apps import AppConfig, apps
from django.conf import settings
from django.utils.module_loading import import_string, module_has_submodule

from .. import conf
from ..compat import DjangoTask, InvalidTask, is_task
from ..exceptions import UnknownTask
from ..formatting import get_logger

logger = get_logger(__name__)

_OURS = "django_pgqueue"
_OUR_TASKS = {"django_pgqueue.admin.bulk.task", "django_pgqueue.jobs.relay"}
HAND_OVER = "django_pgqueue.jobs.relay.hand_over"
"""The task of the relay. Its arguments are an alias and a call of another task."""
RELAY = "relay"  # its queue
AT_SETUP: set[str] = set()
"""The modules that have declared tasks while apps loaded. Workers load the same apps."""
_failed: dict[str, BaseException] = {}
"""The modules that could not be imported in this process. They are not tried again: a page would be slow."""
_discovered: list[Any] = [None, None]


def task_modules(configs: Iterable[AppConfig] | None = None) -> Iterator[str]:
    """Yield the modules that exist and may declare tasks, of some apps or of all."""
    for config in apps.get_app_configs() if configs is None else configs:
        for name in conf.current().task_modules:
            if config.module is not None and config.name != _OURS and _exists(f"{config.name}.{name}"):
                yield f"{config.name}.{name}"


def discover(*, again: bool = False) -> dict[str, BaseException]:
    """Import these modules, failed ones only if ``again``. Return which fail, with their exceptions."""
    names = list(task_modules())
    for name in names:
        if name not in _failed or again:
            try:
                import_module(name)
                _failed.pop(name, None)
            except (Exception, SystemExit) as error:  # whatever the module raises
                _failed[name] = error
                logger.warning("%s cannot be imported: %s: %s", name, type(error).__name__, error)
    return {name: _failed[name] for name in names if name in _failed}


def is_task_module(module: str) -> bool:
    """Return whether TASK_MODULES names a module, or a package that it is in."""
    places = {config.name for config in apps.get_app_configs()} - {_OURS}
    if isinstance(own := settings.SETTINGS_MODULE, str):
        places.add(own.partition(".")[0])
    named = (f"{place}.{name}." for place in places for name in conf.current().task_modules)
    return module in _OUR_TASKS or f"{module}.".startswith(tuple(named))


def is_visible(module: str) -> bool:
    """Return whether this process knows what a module declares: it belongs to an app, and was imported or
    does not exist any more. Another project with the same database may have other modules.
    """
    is_of_app = apps.get_containing_app_config(module) is not None
    return is_of_app and (module in sys.modules or not _exists(module))


def _exists(path: str) -> bool:
    """Return whether there is a module. What contains it is imported."""
    try:
        return path in sys.modules or find_spec(path) is not None
    except ModuleNotFoundError as error:
        return not path.startswith(str(error.name))  # its package is missing, or imports what is
    except (Exception, SystemExit):  # what contains it: the import of the module itself shows it
        return True


def import_task(path: str) -> DjangoTask[..., Any]:
    """Return the task at `path`, ours or Django's. Raise UnknownTask, with the failed import as its cause."""
    module = path.rpartition(".")[0]
    if module not in sys.modules and not is_task_module(module):
        # Once with these settings and apps.
        if conf.current() is not _discovered[0] or apps.app_configs is not _discovered[1]:
            discover()
            _discovered[:] = conf.current(), apps.app_configs
        if module not in sys.modules and (why_not := _why_not(module)):
            raise UnknownTask(
                f"no task {path!r}: the module {module!r} is not imported because of a job. {why_not}"
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


def _why_not(module: str) -> str | None:
    """Return what to do about a module that no worker imports; None if there is none. Nothing is imported."""
    if other := second_name(module):
        return f"Its app is installed by another name: import the task from {other!r} everywhere."
    if (config := apps.get_containing_app_config(module)) is not None:
        rest = module.removeprefix(f"{config.name}.")
        if config.module is None or not module_has_submodule(config.module, rest.partition(".")[0]):
            return None
        return (
            f"Add {rest!r} to TASK_MODULES in PGQUEUE, or import it in a module that is named there, or in "
            f"ready() of the app {config.name!r}."
        )
    package = module.partition(".")[0]
    if package not in sys.modules and not (package and find_spec(package)):
        return None
    return (
        "Put its package into INSTALLED_APPS and its name into TASK_MODULES in PGQUEUE, or import it in "
        "ready() of an app."
    )


def second_name(module: str) -> str | None:
    """Return the name by which workers import a module, if it is another one: ``app.tasks`` for
    ``project.app.tasks``, or the other way round, if both folders are on the path of Python.
    """
    if is_task_module(module) or module in AT_SETUP:
        return None
    parts = module.split(".")
    for config in apps.get_app_configs():
        for length in range(1, len(parts)):
            one, rest = ".".join(parts[:length]), ".".join(parts[length:])
            is_same = f".{one}".endswith(f".{config.name}") or f".{config.name}".endswith(f".{one}")
            other = f"{config.name}.{rest}"
            if is_same and other != module and is_task_module(other) and _is_one_file(module, other):
                return other
    return None


def _is_one_file(module: str, other: str) -> bool:
    """Return whether two names lead to one file. A module that is not imported here has none."""
    try:
        spec = find_spec(other)
    except (ImportError, ValueError):
        return False
    file = getattr(sys.modules.get(module), "__file__", None)
    return spec is not None and file in (None, spec.origin)


@cache
def check_path(func: Callable[..., Any]) -> None:
    """Raise InvalidTask unless a worker that imports the path of a function gets the task of it.

    This needs a fully imported module, so a task is checked when it is first enqueued.
    """
    path = f"{func.__module__}.{func.__qualname__}"
    if func.__module__ == "__main__":
        raise InvalidTask(f"{path}: a worker cannot import __main__. Move the task to a module of an app.")
    if other := second_name(func.__module__):
        raise InvalidTask(f"{path}: workers import its module as {other!r} only. Import the task from there.")
    try:
        found = import_string(path)
    except ImportError as error:
        raise InvalidTask(
            f"{path} cannot be imported by a worker: {error}. A task must have the name of its function: "
            f"write @task above def {func.__name__}."
        ) from error
    if not is_task(found) or found.func is not func:
        what = "another task" if is_task(found) else f"an object of type {type(found).__qualname__}"
        raise InvalidTask(
            f"{path} leads to {what}, not to this task, so no worker could run it. A task must have the "
            f"name of its function: write @task above def {func.__name__}, as the outermost decorator."
        )
