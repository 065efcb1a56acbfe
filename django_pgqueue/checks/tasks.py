"""Checks of the settings and of declared tasks. They do not query the database."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from importlib.util import resolve_name
from inspect import getsource
from typing import TYPE_CHECKING, Any

import django
from django.apps import AppConfig, apps
from django.core.checks import CheckMessage, Error, register
from django.core.checks import Warning as CheckWarning
from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from django.utils.connection import ConnectionDoesNotExist
from django.utils.module_loading import import_string

from .. import conf
from ..alerts import receiver_at
from ..conf import BUILT_IN
from ..context import variable
from ..redaction import redacting_function
from ..tasks.hooks import around_attempt, before_enqueue
from .backends import TAG, broken_entries, default_elsewhere

if TYPE_CHECKING:
    from types import ModuleType

    from ..tasks.task import Task

__all__ = ["TAG", "check_django_tasks", "queue_databases"]


@register(TAG)
def check_settings(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """E002 and E003: PGQUEUE contains an unknown setting, or a setting with an invalid value."""
    return [
        Error(problem.message, hint=problem.hint, id=f"{TAG}.{'E003' if problem.is_value else 'E002'}")
        for problem in conf.problems()
    ]


@register(TAG)
def check_django_tasks(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """E006: this Django has no django.tasks, and the package that provides it is not installed."""
    try:
        from .. import compat  # noqa: F401
    except ImportError as error:
        return [
            Error(
                f"Django {django.get_version()} has no django.tasks, and the package django-tasks, which "
                f"provides it, cannot be imported: {error.__cause__ or error}.",
                hint="Install django-tasks, or Django 6.0 or newer.",
                id=f"{TAG}.E006",
            )
        ]
    return []


@register(TAG)
def check_context(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """E018: CONTEXT names something that is not a context variable."""
    found: list[CheckMessage] = []
    if conf.problems():
        return found
    for name in conf.current().context:
        if name not in BUILT_IN:
            try:
                variable(name)
            except ImproperlyConfigured as error:
                hint = f'Try: python manage.py shell -c "import {name.rpartition(".")[0]}"'
                found.append(Error(str(error), hint=hint, id=f"{TAG}.E018"))
    return found


@register(TAG)
def check_redaction(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """E022: REDACT names something that cannot be called."""
    if conf.problems() or not conf.current().redact.function:
        return []
    path = conf.current().redact.function
    try:
        redacting_function(path)
    except ImproperlyConfigured as error:
        hint = (
            f'Try: python manage.py shell -c "import {path.rpartition(".")[0]}". Until then, all arguments '
            "and results are shown as [redaction failed]."
        )
        return [Error(str(error), hint=hint, id=f"{TAG}.E022")]
    return []


@register(TAG)
def check_setup(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """E024: SETUP, or a setting of hooks, names something that cannot be imported or called."""
    if conf.problems():
        return []
    return [*_setup_problems(conf.current().setup), *_hook_problems()]


def _setup_problems(path: str | None) -> list[CheckMessage]:
    if path is None:
        return []
    try:
        found = import_string(path)
    except ImportError as error:
        text = f"{conf.NAME}['SETUP'] names {path!r}, which cannot be imported: {error}"
    else:
        if callable(found):
            return []
        text = f"{conf.NAME}['SETUP'] names {path!r}, which cannot be called."
    hint = "Write the path of a function without parameters that sets up Django, such as: django.setup"
    return [Error(text, hint=hint, id=f"{TAG}.E024")]


def _hook_problems() -> list[CheckMessage]:
    hint = "Write the path of a function with one parameter, such as: shop.hooks.tenant_of_job"
    found: list[CheckMessage] = []
    for hooks in (before_enqueue, around_attempt):
        try:
            hooks()
        except ImproperlyConfigured as error:
            found.append(Error(str(error), hint=hint, id=f"{TAG}.E024"))
    return found


@register(TAG)
def check_alerts(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """E023: ALERTS names something that cannot be called with an alert."""
    found: list[CheckMessage] = []
    if conf.problems():
        return found
    for path in conf.current().alerts:
        try:
            receiver_at(path)
        except ImproperlyConfigured as error:
            hint = "Write the path of a function with one parameter, such as: def mail(alert): ..."
            found.append(Error(str(error), hint=hint, id=f"{TAG}.E023"))
    return found


@register(TAG)
def check_backends(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """E003, E004, E005 and W001: TASKS has an invalid entry, or its default is another backend, or it does
    not permit the queue of a setting.
    """
    if not _has_django_tasks():
        return []
    return [*broken_entries()] or [*default_elsewhere(), *_bulk_queue()]


@register(TAG)
def check_tasks(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """E007, E008, E027, W002 and W014: tasks that workers could not import. W006: limits that contradict each
    other.
    """
    # E002 and E003 tell what is wrong with PGQUEUE, which names the modules.
    if conf.problems():
        return []
    # If TASKS is invalid, a module with tasks that use Django's own decorator cannot be imported either.
    if not _has_django_tasks() or any(broken_entries()):
        return []
    configs = apps.get_app_configs() if app_configs is None else app_configs
    broken: set[str] = set()
    return [*_modules(configs, broken), *_paths(broken), *_not_imported(broken), *_limits()]


@register(TAG)
def check_databases(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """E001, E005 and E017: jobs would go to a database that is not PostgreSQL, does not exist, or has a too
    long alias.
    """
    found: list[CheckMessage] = []
    if not _has_django_tasks():
        return found
    from ..tasks.results import LONGEST_ALIAS

    for alias, why in sorted(queue_databases().items()):
        try:
            vendor = connections[alias].vendor
        except ConnectionDoesNotExist:
            message = f"Jobs go to the database {alias!r} because of {why}, but it is not in DATABASES."
            hint = f"The aliases are {', '.join(connections.settings)}."
            found.append(Error(message, hint=hint, id=f"{TAG}.E005"))
            continue
        if vendor != "postgresql":
            found.append(
                Error(
                    f"Jobs go to the database {alias!r} because of {why}, but it is not PostgreSQL "
                    f"({vendor}).",
                    hint=f"Set 'ENGINE': 'django.db.backends.postgresql' in DATABASES[{alias!r}]. If "
                    "the jobs belong in another database, name it in OPTIONS['database'] of the backend in "
                    "TASKS, or use a database router whose db_for_write() returns it for the app "
                    "'django_pgqueue'.",
                    id=f"{TAG}.E001",
                )
            )
        if len(alias) > LONGEST_ALIAS:
            found.append(
                Error(
                    f"Jobs go to the database {alias!r} because of {why}, but its alias has {len(alias)} "
                    f"characters. The ids of its jobs would be longer than django.tasks allows.",
                    hint=f"Give it an alias of at most {LONGEST_ALIAS} characters in DATABASES.",
                    id=f"{TAG}.E017",
                )
            )
    return found


def _has_django_tasks() -> bool:
    return not check_django_tasks(None)


def _bulk_queue() -> Iterator[CheckMessage]:
    """E003: QUEUES does not contain the queue in which actions of the admin on many jobs run."""
    from ..tasks.routing import default_backend

    chosen = None if conf.problems() else conf.current().bulk_queue
    permitted = default_backend().queues
    if chosen is not None and permitted and chosen not in permitted:
        yield Error(
            f"{conf.NAME}['BULK_QUEUE'] is {chosen!r}, which QUEUES in TASKS does not contain.",
            hint=f"QUEUES contains {', '.join(sorted(permitted))}. Add {chosen!r}, or choose one of these.",
            id=f"{TAG}.E003",
        )


def _modules(configs: Iterable[AppConfig], broken: set[str]) -> Iterator[CheckMessage]:
    """Import the modules of each app that may declare tasks, as a worker does. Add those that raise."""
    from ..compat import INVALID_TASKS
    from ..tasks.registry import task_modules

    for name in task_modules(configs):
        try:
            import_module(name)
        except INVALID_TASKS as error:
            broken.add(name)
            yield Error(
                f"{name} declares an invalid task: {error}",
                hint="Correct it. Until then, the module cannot be imported, so none of its tasks can run.",
                id=f"{TAG}.E008",
            )
        except Exception as error:  # a module may raise anything; its tasks may not belong to this queue
            broken.add(name)
            yield CheckWarning(
                f"{name} cannot be imported, so no worker can run its tasks: {type(error).__name__}: {error}",
                hint=f'Try: python manage.py shell -c "import {name}"',
                id=f"{TAG}.W002",
            )


def _paths(broken: set[str]) -> Iterator[CheckMessage]:
    """Find declared tasks that cannot be imported by their path. Those of modules that raise are known."""
    from ..compat import InvalidTask
    from ..tasks.paths import check_path, second_name
    from ..tasks.task import declared_tasks

    said = set()
    for task in declared_tasks():
        module = task.func.__module__
        if module in {"__main__", *broken} or task.module_path in said:
            continue
        try:
            check_path(task)
        except InvalidTask as error:
            said.add(task.module_path)
            if other := second_name(module):
                hint = f"Write {other!r} instead of {module!r} wherever the module is imported."
                yield Error(str(error), hint=hint, id=f"{TAG}.E027")
            else:
                hint = f"Put @task above all other decorators of def {task.func.__name__}."
                yield Error(str(error), hint=hint, id=f"{TAG}.E007")


def _not_imported(broken: set[str]) -> Iterator[CheckMessage]:
    """Find modules with tasks that this process has imported, and that workers would not import."""
    from ..tasks.paths import AT_SETUP, app_of, is_task_module, second_name, task_modules
    from ..tasks.routing import is_test
    from ..tasks.task import declared_tasks

    if is_test():  # tests declare tasks that no worker needs
        return
    tasks: dict[str, list[str]] = {}
    for task in declared_tasks():
        module = task.func.__module__
        if not (module in {"__main__", *broken, *AT_SETUP} or is_task_module(module) or second_name(module)):
            tasks.setdefault(module, []).append(task.func.__name__)
    if not tasks:
        return
    known = _with_their_imports(task_modules(), {module.partition(".")[0] for module in tasks})
    for module in sorted(tasks.keys() - known):
        names = ", ".join(sorted(set(tasks[module])))
        config = app_of(module)
        remedy = (
            f"Put an app that contains {module} into INSTALLED_APPS"
            if config is None
            else f"Add {module.removeprefix(f'{config.name}.')!r} to {conf.NAME}['TASK_MODULES']"
        )
        yield CheckWarning(
            f"Workers do not import {module}, which declares {names}: TASK_MODULES does not name it, and no "
            "module that is named there imports it. Jobs of these tasks fail as unknown.",
            hint=f"{remedy}, or import the module in one that is named there, or in ready() of an app.",
            id=f"{TAG}.W014",
        )


def _with_their_imports(names: Iterable[str], packages: set[str]) -> set[str]:
    """Return these modules and those that they import, in some packages. It is read from their sources: what
    else this process has imported does not count.
    """
    found, queue = set(), list(names)
    while queue:
        name = queue.pop()
        if name not in found and name.partition(".")[0] in packages and name in sys.modules:
            found.add(name)
            queue += _imports(sys.modules[name])
    return found


def _imports(module: ModuleType) -> Iterator[str]:
    """Yield what a module may import when it is imported itself."""
    try:
        queue: list[ast.AST] = [ast.parse(getsource(module))]
    except (OSError, TypeError, SyntaxError):  # an empty file, or one without a source
        return
    while queue:
        node = queue.pop()
        if isinstance(node, ast.Import):
            names = [each.name for each in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = resolve_name(f"{'.' * node.level}{node.module or ''}", module.__package__ or "")
            names = [base, *(f"{base}.{each.name}" for each in node.names)]
        else:
            if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
                queue += ast.iter_child_nodes(node)
            continue
        for name in names:
            parts = name.split(".")  # its packages are imported as well
            yield from (".".join(parts[:length]) for length in range(1, len(parts) + 1))


def _limits() -> Iterator[CheckMessage]:
    """Find tasks that declare different limits under the same name: only one of them can apply."""
    from ..tasks.keys import limit_name, limit_numbers
    from ..tasks.task import declared_tasks

    limited = {task.module_path: task for task in declared_tasks() if task.concurrency or task.rate_limit}
    first: dict[str, Task[..., Any]] = {}
    for task in sorted(limited.values(), key=lambda task: task.module_path):
        name = limit_name(task)
        other = first.setdefault(name, task)
        if limit_numbers(task) != limit_numbers(other):
            yield CheckWarning(
                f"{other.module_path} and {task.module_path} declare different limits under the name "
                f"{name!r}. Only one of them can apply: {_declared(other)}, or {_declared(task)}.",
                hint="Declare the same numbers and the same on_full, or give one limit another name.",
                id=f"{TAG}.W006",
            )


def _declared(task: Task[..., Any]) -> str:
    return " and ".join(
        f"{name}={rule!r}"
        for name, rule in (("concurrency", task.concurrency), ("rate_limit", task.rate_limit))
        if rule
    )


def queue_databases() -> dict[str, str]:
    """Return the databases that jobs are written to, each with the setting or the task that names it."""
    from ..compat import task_backends
    from ..tasks.routing import implicit_backend, our_aliases
    from ..tasks.task import declared_tasks

    found = {implicit_backend().home(): "DATABASE_ROUTERS (or the default routing)"}
    for alias in our_aliases():
        options = task_backends.settings[alias].get("OPTIONS")
        database = options.get("database") if isinstance(options, Mapping) else None
        if isinstance(database, str):
            found.setdefault(database, f"TASKS[{alias!r}]['OPTIONS']['database']")
    for task in declared_tasks():
        if task.database is not None:
            found.setdefault(task.database, f"the task {task.module_path}")
    return found
