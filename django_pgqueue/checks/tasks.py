"""Checks of the settings, of declared tasks, and of schedules. They do not query the database.

``@schedule`` validates what it declares when its module is imported, except for the keys: a callable may need
what is not there yet.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from importlib.util import resolve_name
from inspect import getsource
from itertools import combinations
from types import ModuleType
from typing import Any

from django.apps import AppConfig, apps
from django.conf import settings
from django.core.checks import CheckMessage
from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from django.utils.connection import ConnectionDoesNotExist

from .. import conf
from ..compat import INVALID_TASKS, InvalidTask, InvalidTaskBackend, task_backends
from ..conf import BUILT_IN
from ..context import variable
from ..exceptions import InvalidKey, UnknownTask, WrongBackend
from ..formatting import did_you_mean
from ..maintenance.schedules import database_of
from ..postgres.aliases import same_database
from ..schedules.declare import Declaration, declared_schedules, schedules_in_settings
from ..schedules.policy import call_keys
from ..tasks.keys import limit_name, limit_numbers
from ..tasks.links import LONGEST_ALIAS
from ..tasks.paths import AT_SETUP, check_path, discover, is_task_module, second_name, task_modules
from ..tasks.routing import default_backend, implicit_backend, is_ours, is_test, our_aliases
from ..tasks.signatures import check_call
from ..tasks.task import Task, declared_tasks, find_task
from .backends import broken_entries, check, default_elsewhere, message, settings_are_broken


@check()
def check_settings(app_configs: Any, **kwargs: Any) -> Iterator[CheckMessage]:
    """E002 and E003: PGQUEUE contains an unknown setting, or a setting with an invalid value. E018, E022,
    E023 and E024: a setting names what cannot be imported, or cannot be called.
    """
    if wrong := conf.problems():
        yield from (message("E003" if each.is_value else "E002", each.message, each.hint) for each in wrong)
        return
    settings = conf.current()
    function = "Write the path of a function"
    names: list[tuple[str, str, Iterable[str | None], list[str], str]] = [
        ("E018", "CONTEXT", [*{*settings.context} - {*BUILT_IN}], [], "Write the path of a ContextVar."),
        ("E022", "REDACT", [settings.redact.function], ["the value", "the path of the task"],
         "Until it is corrected, all arguments and results are shown as [redaction failed]."),
        ("E023", "ALERTS", settings.alerts, ["the alert"], f"{function} such as: def mail(alert): ..."),
        ("E024", "SETUP", [settings.setup], [], f"{function} that sets up Django, such as: django.setup"),
        ("E024", "BEFORE_ENQUEUE", settings.before_enqueue, ["the call"], f"{function} with one parameter."),
        ("E024", "AROUND_ATTEMPT", settings.around_attempt, ["the job"], f"{function} with one parameter."),
    ]  # fmt: skip
    for number, setting, paths, arguments, hint in names:
        for path in filter(None, paths):
            try:
                variable(path) if setting == "CONTEXT" else conf.callable_at(setting, path, *arguments)
            except ImproperlyConfigured as problem:
                yield message(number, str(problem), hint)


@check()
def check_backends(app_configs: Any, **kwargs: Any) -> Iterator[CheckMessage]:
    """E003, E004, E005 and W001: TASKS has an invalid entry, or its default is another backend, or it does
    not permit the queue of a setting.
    """
    if broken := [*broken_entries()]:
        yield from broken
        return
    yield from default_elsewhere()
    chosen = None if conf.problems() else conf.current().bulk_queue
    permitted = default_backend().queues
    if chosen is not None and permitted and chosen not in permitted:
        yield message(
            "E003",
            f"{conf.NAME}['BULK_QUEUE'] is {chosen!r}, which QUEUES in TASKS does not contain.",
            f"QUEUES contains {', '.join(sorted(permitted))}. Add {chosen!r}, or choose one of these.",
        )


@check()
def check_tasks(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> Iterator[CheckMessage]:
    """E007, E008, E027, W002, W014: tasks that workers could not import. E031: tasks whose queue is not in
    QUEUES. W006: contradictory limits. W016: an index of arguments that stays empty.
    """
    if settings_are_broken():
        return
    broken: set[str] = set()
    for name in task_modules(app_configs):
        try:
            import_module(name)
        except INVALID_TASKS as problem:
            broken.add(name)
            yield message(
                "E008",
                f"{name} declares an invalid task: {problem}",
                "Correct it. Until then, the module cannot be imported, so none of its tasks can run.",
            )
        except Exception as problem:  # a module may raise anything; its tasks may not belong to this queue
            broken.add(name)
            yield message(
                "W002",
                f"{name} cannot be imported, so no worker can run its tasks: {type(problem).__name__}: "
                f"{problem}",
                f'Try: python manage.py shell -c "import {name}"',
            )
    yield from (*_paths(broken), *_not_imported(broken), *_queues(), *_limits(), *_hidden())


def _apps_of_tenants() -> Iterator[tuple[str, Any, str]]:
    """Yield where tenants' apps are in django-tenants and django-pgschemas, these, and where others go."""
    yield "TENANT_APPS", getattr(settings, "TENANT_APPS", ()), "SHARED_APPS"
    schemas = getattr(settings, "TENANTS", None)  # another package may use this name for something else
    for schema, given in schemas.items() if isinstance(schemas, dict) else ():
        if schema != "public" and isinstance(given, dict):
            yield f"TENANTS[{schema!r}]['APPS']", given.get("APPS", ()), "TENANTS['public']['APPS']"


@check()
def check_databases(app_configs: Any, **kwargs: Any) -> Iterator[CheckMessage]:
    """E001, E005, E017: jobs would go to a database that is not PostgreSQL, missing, or has a long alias.
    E032: two shards are one database. E034: a replica is missing, or is its own primary. W020: each tenant
    would have a queue.
    """
    for alias, why in sorted(queue_databases().items()):
        jobs = f"Jobs go to the database {alias!r} because of {why}, but"
        try:
            vendor = connections[alias].vendor
        except ConnectionDoesNotExist:
            hint = f"The aliases are {', '.join(connections.settings)}."
            yield message("E005", f"{jobs} it is not in DATABASES.", hint)
            continue
        if vendor != "postgresql":
            yield message(
                "E001",
                f"{jobs} it is not PostgreSQL ({vendor}).",
                f"Set 'ENGINE': 'django.db.backends.postgresql' in DATABASES[{alias!r}]. If the jobs belong "
                "in another database, name it in OPTIONS['database'] of the backend in TASKS, or use a "
                "database router whose db_for_write() returns it for the app 'django_pgqueue'.",
            )
        if len(alias) > LONGEST_ALIAS:
            yield message(
                "E017",
                f"{jobs} its alias has {len(alias)} characters. The ids of its jobs would be longer than "
                "django.tasks allows.",
                f"Give it an alias of at most {LONGEST_ALIAS} characters in DATABASES.",
            )
    for place, names, shared in _apps_of_tenants():
        if any(str(name).partition(".")[0] == "django_pgqueue" for name in names):
            yield message(
                "W020",
                f"{place} has django_pgqueue, so each tenant's schema would have a queue of its own, which "
                "no worker finds.",
                f"Put it into {shared} only. Its tables are in the schema public then, for the jobs of all "
                "tenants.",
            )
    shards = () if settings_are_broken() else conf.current().shards
    for one, other in combinations(shards, 2):
        if same_database(one, other):
            yield message(
                "E032",
                f"PGQUEUE['SHARDS'] names one database twice, as {one!r} and as {other!r}.",
                "Remove one of them. Each shard is a database, or a schema, of its own.",
            )
    replicas = {} if settings_are_broken() else conf.current().replicas
    for primary, replica in replicas.items():
        missing = next((alias for alias in (primary, replica) if alias not in connections.settings), None)
        if missing is not None or same_database(primary, replica):
            wrong = "one database twice" if missing is None else f"{missing!r}, which is not in DATABASES"
            yield message(
                "E034",
                f"PGQUEUE['REPLICAS'] names {wrong}.",
                'Write the alias of the primary, and that of its standby: {"default": "replica"}.',
            )


@check()
def check_schedules(app_configs: Any, **kwargs: Any) -> Iterator[CheckMessage]:
    """E014, E015, E016 and E031: schedules in the settings that are invalid, schedules that cannot be called,
    schedules that settings and code declare, and schedules whose queue is not in QUEUES.
    """
    if settings_are_broken() or not (conf.current().schedules or declared_schedules()):
        return
    discover()
    good, wrong = schedules_in_settings()
    for name, problem in wrong.items():
        yield message(
            "E014",
            f"PGQUEUE['SCHEDULES'][{name!r}] is invalid: {problem}",
            "Correct the value. It takes the options of @schedule.",
        )
    for each in (*good.values(), *declared_schedules().values()):
        yield from _uncallable(each)
    for name, declaration in declared_schedules().items():
        if name in good:
            yield message(
                "E016",
                f"The schedule {name!r} is declared twice: in PGQUEUE['SCHEDULES'], and with @schedule in "
                f"{declaration.declared_by}.",
                "Remove one of them, or give it another name.",
            )


def _uncallable(declaration: Declaration) -> Iterator[CheckMessage]:
    where = f"PGQUEUE['SCHEDULES'][{declaration.name!r}]"
    if declaration.source == "code":
        where = f"The schedule {declaration.name!r} in {declaration.declared_by}"
    try:
        task = find_task(declaration.task_path)
        database_of(task)
        check_call(task, declaration.args, declaration.kwargs)
        call_keys(task, declaration.args, declaration.kwargs)
        if declaration.queue_name is not None:
            yield from _unknown_queue(where, task.with_values({"queue_name": declaration.queue_name}))
    except UnknownTask as problem:
        hint = "Set 'task' to the dotted path of a function with @task, such as 'shop.tasks.report'."
        yield message("E015", f"{where}: {problem}", hint)
    except WrongBackend as problem:
        hint = "Declare the task with @task of django_pgqueue, or with another backend."
        yield message("E015", f"{where}: {problem}", hint)
    except InvalidKey as problem:
        hint = "Correct the arguments of the schedule, or the callable of the task."
        yield message("E015", f"{where} would not fire: {problem}", hint)
    except (TypeError, InvalidTask) as problem:
        hint = "Set 'args' and 'kwargs' to what the task takes."
        yield message("E015", f"{where} cannot be called: {problem}", hint)


def _paths(broken: set[str]) -> Iterator[CheckMessage]:
    """Find declared tasks that cannot be imported by their path, except tasks of modules that raise."""
    said = set()
    for task in declared_tasks():
        module = task.func.__module__
        if module in {"__main__", *broken} or task.module_path in said:
            continue
        try:
            check_path(task.func)
        except InvalidTask as problem:
            said.add(task.module_path)
            if other := second_name(module):
                hint = f"Write {other!r} instead of {module!r} wherever the module is imported."
                yield message("E027", str(problem), hint)
            else:
                hint = f"Put @task above all other decorators of def {task.func.__name__}."
                yield message("E007", str(problem), hint)


def _queues() -> Iterator[CheckMessage]:
    """Find tasks whose queue QUEUES in TASKS lacks, so that each enqueue would fail."""
    for task in declared_tasks():
        with suppress(InvalidTaskBackend):
            yield from _unknown_queue(f"The task {task.module_path}", task)


def _unknown_queue(what: str, task: Task[..., Any]) -> Iterator[CheckMessage]:
    backend = task.get_backend()
    if is_ours(backend) and backend.queues and (name := task.queue_name) not in backend.queues:
        yield message(
            "E031",
            f"{what} uses the queue {name!r}, which QUEUES of TASKS[{backend.alias!r}] lacks.",
            did_you_mean(name, backend.queues, f"QUEUES contains {', '.join(sorted(backend.queues))}.")
            + " Correct the name, add it to QUEUES, or remove QUEUES to allow any name.",
        )


def _not_imported(broken: set[str]) -> Iterator[CheckMessage]:
    """Find modules with tasks that this process has imported, and that workers would not import."""
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
        config = apps.get_containing_app_config(module)
        remedy = (
            f"Put an app that contains {module} into INSTALLED_APPS"
            if config is None
            else f"Add {module.removeprefix(f'{config.name}.')!r} to {conf.NAME}['TASK_MODULES']"
        )
        yield message(
            "W014",
            f"Workers do not import {module}, which declares {names}: TASK_MODULES does not name it, and no "
            "module that is named there imports it. Jobs of these tasks fail as unknown.",
            f"{remedy}, or import the module in one that is named there, or in ready() of an app.",
        )


def _with_their_imports(names: Iterable[str], packages: set[str]) -> set[str]:
    """Return these modules, and modules of some packages that their sources import."""
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
    limited = {task.module_path: task for task in declared_tasks() if task.concurrency or task.rate_limit}
    first: dict[str, Task[..., Any]] = {}
    for task in sorted(limited.values(), key=lambda task: task.module_path):
        name = limit_name(task)
        other = first.setdefault(name, task)
        if limit_numbers(task) != limit_numbers(other):
            yield message(
                "W006",
                f"{other.module_path} and {task.module_path} declare different limits under the name "
                f"{name!r}. Only one of them can apply: {_declared(other)}, or {_declared(task)}.",
                "Declare the same numbers and the same on_full, or give one limit another name.",
            )


def _hidden() -> Iterator[CheckMessage]:
    """Find tasks with ``search`` whose arguments REDACT keeps out of the index."""
    redact = conf.current().redact
    searching = {task.module_path: task for task in declared_tasks() if task.search}
    for path, task in sorted(searching.items()):
        hidden = [name for name in task.search if not redact.are_names or redact.hide(name)]
        if hidden:
            why = "hides it" if redact.are_names else "has patterns or a callable"
            yield message(
                "W016",
                f"{path} names {', '.join(hidden)} in search, but REDACT {why}, so the index has no values "
                "of it, and no search finds a job by them.",
                f"Remove it from search, or change {conf.NAME}['REDACT'].",
            )


def _declared(task: Task[..., Any]) -> str:
    rules = {"concurrency": task.concurrency, "rate_limit": task.rate_limit}
    return " and ".join(f"{name}={rule!r}" for name, rule in rules.items() if rule)


def queue_databases() -> dict[str, str]:
    """Return the databases that jobs are written to, each with the setting or the task that names it."""
    found = {implicit_backend().home(): "DATABASE_ROUTERS (or the default routing)"}
    for alias in our_aliases():
        options = task_backends.settings[alias].get("OPTIONS")
        database = options.get("database") if isinstance(options, Mapping) else None
        if isinstance(database, str):
            found.setdefault(database, f"TASKS[{alias!r}]['OPTIONS']['database']")
    for task in declared_tasks():
        if task.database is not None:
            found.setdefault(task.database, f"the task {task.module_path}")
    for alias in () if settings_are_broken() else conf.current().shards:
        found.setdefault(alias, "PGQUEUE['SHARDS']")
    return found
