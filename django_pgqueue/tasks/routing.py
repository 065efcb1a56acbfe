"""Find the backend in TASKS for a task, and whether it is one of ours.

The backend itself is on top of the package's layers and is not imported here. TASKS names it by its dotted
path, and so does the entry of the implicit backend, which is used for tasks that name no backend if TASKS has
none of ours.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from django.conf import global_settings, settings
from django.utils.module_loading import import_string

from ..compat import PACKAGES, BaseTaskBackend, is_backend_class, task_backends

if TYPE_CHECKING:
    from typing_extensions import TypeIs

    from ..backend import PgQueueBackend

IMPLICIT = "django_pgqueue"
"""The `backend` of a task that names none; resolved at first use. Also the implicit backend's alias."""

_STAND_INS = {
    f"{package}.backends.{name.removesuffix('Backend').lower()}.{name}": f"django_pgqueue.testing.{name}"
    for package in PACKAGES for name in ("DummyBackend", "ImmediateBackend")
}  # fmt: skip
"""The backends for tests that act like Django's, by the paths of Django's."""


class QueueBackend(BaseTaskBackend):
    """The base class of `django_pgqueue.backend.PgQueueBackend`, by which the modules below know it."""

    @property
    def keeper(self) -> Any:
        """What takes the calls in tests (see `jobs.batches.BatchRows`). None: they are written."""
        return None


def is_ours(backend: BaseTaskBackend) -> TypeIs[PgQueueBackend]:
    """Return whether a backend belongs to this package."""
    return isinstance(backend, QueueBackend)


def our_aliases() -> list[str]:
    """Return the aliases of our backends in TASKS that can be imported, ``"default"`` first."""
    configured: Any = task_backends.settings
    if not isinstance(configured, Mapping):  # check E004 reports it
        return []
    return [
        alias
        for alias in sorted(configured, key=lambda alias: alias != "default")
        if (cls := backend_class(configured[alias])) is not None and issubclass(cls, QueueBackend)
    ]


def backend_class(params: Any) -> type[BaseTaskBackend] | None:
    """Return the class of an entry of TASKS; None if it cannot be imported, which a system check reports."""
    try:
        cls = import_string(params["BACKEND"])
    except Exception:  # whatever the module raises while it is imported
        return None
    return cls if is_backend_class(cls) else None


def resolve(alias: str) -> BaseTaskBackend:
    """Return the backend with this alias, which may be IMPLICIT. Raise InvalidTaskBackend if unknown."""
    return default_backend() if alias == IMPLICIT else task_backends[alias]


def default_backend() -> PgQueueBackend:
    """Return the backend for tasks that name none.

    This is ``TASKS["default"]`` if it is ours, else the first one that is ours, else the implicit backend.
    If TASKS sets a backend of Django for tests as the default, tests use its stand-in as implicit backend.
    """
    global _default
    tasks, tested = task_backends.settings, is_test()
    # Django makes a new dict when TASKS is overridden.
    if _default is None or _default[0] is not tasks or _default[1] != tested:
        ours, default = our_aliases(), tasks.get("default", {}) if isinstance(tasks, Mapping) else {}
        if ours:
            backend = cast("PgQueueBackend", task_backends[ours[0]])
        elif tested and sets_tasks() and (path := _STAND_INS.get(str(default.get("BACKEND")))):
            backend = _backend_at(path)
        else:
            backend = implicit_backend()
        _default = tasks, tested, backend
    return _default[2]


# The settings, whether this is a test, and our backend for these, which keeps no state: threads share it.
_default: tuple[Any, bool, PgQueueBackend] | None = None


def sets_tasks() -> bool:
    """Return whether the project sets TASKS. In one of django-configurations, each setting is overridden, and
    a setting that the project leaves out has the value of Django.
    """
    return getattr(settings, "TASKS", None) is not getattr(global_settings, "TASKS", None)


def implicit_backend() -> PgQueueBackend:
    """Return the backend that accepts any queue and uses the router's database."""
    return _backend_at("django_pgqueue.backend.PgQueueBackend")


def is_test() -> bool:
    """Return whether this process is in Django's test environment."""
    utils = sys.modules.get("django.test.utils")  # if it is not imported, this is not a test
    return hasattr(getattr(utils, "_TestState", None), "saved_data")


@cache
def _backend_at(path: str) -> PgQueueBackend:
    backend: PgQueueBackend = import_string(path)(IMPLICIT, {})
    return backend
