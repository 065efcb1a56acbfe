"""What is wrong with TASKS: entries that make no backend, and a default that is not this queue.

Django has a check of its own, which makes every backend and lets through what that raises. So a wrong path or
a bad option would show as a traceback, and nothing of what other checks have found. While TASKS is broken in
a way that we can put in words, `silence_django` takes that check out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import Any

import django
from django.apps import apps
from django.conf import settings
from django.core.checks import CheckMessage, Error
from django.core.checks import Warning as CheckWarning
from django.core.checks.registry import registry
from django.core.exceptions import ImproperlyConfigured

TAG = "pgqueue"
OURS = "django_pgqueue.backend.PgQueueBackend"
LINES = f'''TASKS = {{
    "default": {{"BACKEND": "{OURS}"}},
}}'''


def broken_entries() -> Iterator[CheckMessage]:
    """E004 and E005: the entries of TASKS of which no backend can be made."""
    from .compat import task_backends
    from .routing import backend_class, is_ours

    tasks: Any = task_backends.settings
    if not isinstance(tasks, Mapping):
        yield Error(f"TASKS must be a dict, not {tasks!r}.", hint=_write_lines(), id=f"{TAG}.E004")
        return
    for alias, params in tasks.items():
        where = f"TASKS[{alias!r}]"
        if not isinstance(params, Mapping):
            yield Error(f"{where} must be a dict, not {params!r}.", hint=_write_lines(), id=f"{TAG}.E004")
        elif "BACKEND" not in params:
            hint = f'Add "BACKEND": "{OURS}".'
            yield Error(f"{where} has no BACKEND.", hint=hint, id=f"{TAG}.E004")
        elif (cls := backend_class(params)) is None:
            yield _not_a_backend(where, params["BACKEND"])
        elif is_ours(cls):
            try:
                cls(alias, dict(params))
            except ImproperlyConfigured as error:
                # A subclass of ours may refuse something in its own words.
                message, remedy = getattr(error, "message", str(error)), getattr(error, "hint", None)
                yield Error(message, hint=remedy or f"See {cls.__qualname__}.", id=f"{TAG}.E005")


def default_elsewhere() -> Iterator[CheckMessage]:
    """W001: tasks of Django's own decorator do not go to this queue."""
    from .compat import DjangoTask, task_backends
    from .routing import backend_class, is_ours, our_aliases

    default = task_backends.settings.get("default", {})  # without it, Django refuses such tasks by itself
    cls = backend_class(default)
    if cls is None or is_ours(cls):
        return
    decorator = f"@{DjangoTask.__module__.removesuffix('.base')}.task"
    if not settings.is_overridden("TASKS"):  # type: ignore[misc]
        yield CheckWarning(
            f"TASKS is not set, so tasks made with {decorator} run at once, in the process that enqueues "
            "them, and not in this queue.",
            hint=f"{_write_lines()}\n\n{_silence()}",
            id=f"{TAG}.W001",
        )
        return
    ours = our_aliases()
    yield CheckWarning(
        f"TASKS['default'] is {default['BACKEND']!r}: tasks made with {decorator} go there, "
        "not to this queue.",
        hint=f"Tasks made with django_pgqueue.task go to {ours[0]!r} in TASKS. {_silence()}"
        if ours
        else f"{_write_lines()}\n\n{_silence()}",
        id=f"{TAG}.W001",
    )


def silence_django() -> None:
    """Take Django's own check of TASKS out, for this process, if TASKS is broken: ours says it in words.

    Race: the app ``django_tasks`` registers its check when it is ready, which may be after ours. A module is
    run once only, so that check is registered here and not again.
    """
    from .compat import DjangoTask

    package = DjangoTask.__module__.removesuffix(".base")
    if not any(broken_entries()) or (django.VERSION < (6, 0) and not apps.is_installed(package)):
        return
    registry.registered_checks.discard(import_module(f"{package}.checks").check_tasks)


def _not_a_backend(where: str, path: Any) -> CheckMessage:
    # A path with the name of this package, or nearly so, is meant to be ours.
    is_meant = "pgqueue" in str(path).lower() or get_close_matches(str(path), [OURS])
    return Error(
        f"{where}: the BACKEND {path!r} cannot be imported, or is no task backend.",
        hint=f'Write "{OURS}".' if is_meant else f'Correct the path. The backend of this queue is "{OURS}".',
        id=f"{TAG}.E004",
    )


def _write_lines() -> str:
    return f"Write in your settings:\n\n{LINES}"


def _silence() -> str:
    return f'If this is intended, set SILENCED_SYSTEM_CHECKS = ["{TAG}.W001"].'
