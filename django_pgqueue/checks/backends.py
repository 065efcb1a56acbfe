"""Check TASKS for entries that cannot be used as a backend, and for a default that is not this queue.

Django's own check of TASKS creates every backend and does not catch exceptions, so a wrong path or an invalid
option would show a traceback instead of the messages of all checks. If TASKS has an error that is reported
here, `silence_django` removes Django's check.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from functools import wraps
from importlib import import_module
from typing import Any

from django.apps import apps
from django.core.checks import CheckMessage, Error, Warning as CheckWarning, register
from django.core.checks.registry import registry
from django.core.exceptions import ImproperlyConfigured

from .. import conf
from ..compat import PACKAGES, DjangoTask, task_backends
from ..tasks.routing import QueueBackend, backend_class, our_aliases, sets_tasks

TAG = "pgqueue"
OURS = "django_pgqueue.backend.PgQueueBackend"
LINES = f'''TASKS = {{
    "default": {{"BACKEND": "{OURS}"}},
}}'''
_USE = f"Use this in your settings:\n\n{LINES}"

Check = Callable[..., list[CheckMessage]]


def check(tag: str = TAG) -> Callable[[Callable[..., Iterator[CheckMessage]]], Check]:
    """Register a check that yields its messages."""

    def registered(function: Callable[..., Iterator[CheckMessage]]) -> Check:
        return register(wraps(function)(lambda *args, **kwargs: list(function(*args, **kwargs))), tag)

    return registered


def message(number: str, text: str, hint: str) -> CheckMessage:
    """Return the error, or the warning, with this number."""
    return (Error if number[0] == "E" else CheckWarning)(text, hint=hint, id=f"{TAG}.{number}")


def settings_are_broken() -> bool:
    """Return whether PGQUEUE or TASKS is invalid, as others report: Django's own decorator fails then."""
    return bool(conf.problems()) or any(broken_entries())


def broken_entries() -> Iterator[CheckMessage]:
    """E004 and E005: the entries of TASKS that cannot be used as a backend."""
    tasks: Any = task_backends.settings
    if not isinstance(tasks, Mapping):
        yield message("E004", f"TASKS must be a dict, not {tasks!r}.", _USE)
        return
    for alias, params in tasks.items():
        where = f"TASKS[{alias!r}]"
        if not isinstance(params, Mapping):
            yield message("E004", f"{where} must be a dict, not {params!r}.", _USE)
        elif "BACKEND" not in params:
            yield message("E004", f"{where} has no BACKEND.", f'Add "BACKEND": "{OURS}".')
        elif (cls := backend_class(params)) is None:
            # A path that contains the name of this package, or is similar, is probably meant to be it.
            path = str(params["BACKEND"])
            is_meant = "pgqueue" in path.lower() or get_close_matches(path, [OURS])
            yield message(
                "E004",
                f"{where}: the BACKEND {params['BACKEND']!r} cannot be imported, or is not a task backend.",
                f'Use "{OURS}".' if is_meant else f'Correct the path. The backend of this queue is "{OURS}".',
            )
        elif issubclass(cls, QueueBackend):
            try:
                cls(alias, dict(params))
            except ImproperlyConfigured as problem:
                # A subclass of this backend may raise its own error, without a hint.
                own = (str(problem), f"See {cls.__qualname__}.")
                yield message("E005", *(problem.args if len(problem.args) == 2 else own))


def default_elsewhere() -> Iterator[CheckMessage]:
    """W001: tasks that use Django's own decorator do not go to this queue."""
    default = task_backends.settings.get("default", {})  # if it is missing, Django refuses such tasks itself
    cls = backend_class(default)
    if cls is None or issubclass(cls, QueueBackend):
        return
    decorator, ours = f"@{DjangoTask.__module__.removesuffix('.base')}.task", our_aliases()
    text = (
        f"TASKS is not set, so tasks that use {decorator} do not go to this queue. They run immediately, in "
        "the process that enqueues them."
    )
    if sets_tasks():
        text = (
            f"TASKS['default'] is {default['BACKEND']!r}, so tasks that use {decorator} go there, not to "
            "this queue."
        )
    hint = f"Tasks that use django_pgqueue.task go to {ours[0]!r} in TASKS. " if ours else f"{_USE}\n\n"
    yield message("W001", text, f'{hint}If this is intended, set SILENCED_SYSTEM_CHECKS = ["{TAG}.W001"].')


def silence_django() -> None:
    """Remove Django's own check of TASKS from this process if TASKS is invalid, because these checks report
    it. The backport has the same check.

    Race: the app ``django_tasks`` registers its check when it is ready, which may be later than this app.
    Importing its module here registers the check now, and not a second time later.
    """
    if any(broken_entries()):
        for package in PACKAGES:
            if package == "django.tasks" or apps.is_installed(package):
                registry.registered_checks.discard(import_module(f"{package}.checks").check_tasks)
