"""Find the backend in TASKS for a task, and tell whether it is one of ours.

The backend itself is on top of the package's layers and is not imported here. TASKS names it by its dotted
path, and so does the entry of the implicit backend, which is used for tasks that name no backend if TASKS has
none of ours.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, cast, overload

from django.utils.module_loading import import_string

from .compat import BaseTaskBackend, DjangoTask, task_backends

if TYPE_CHECKING:
    from typing_extensions import TypeIs

__all__ = [
    "IMPLICIT",
    "QueueBackend",
    "backend_class",
    "default_backend",
    "implicit_backend",
    "is_ours",
    "our_aliases",
    "resolve",
]

IMPLICIT = "django_pgqueue"
"""The `backend` of a task that names none; resolved at first use. Also the implicit backend's alias."""

_IMPLICIT_ENTRY = {"BACKEND": "django_pgqueue.backend.PgQueueBackend"}


class QueueBackend(BaseTaskBackend):
    """What the rest of the package needs from its backend, `django_pgqueue.backend.PgQueueBackend`."""

    @abstractmethod
    def home(self) -> str:
        """Return the alias of the database that jobs go to if their task names none."""

    @abstractmethod
    def check_queue(self, task: DjangoTask[..., Any]) -> None:
        """Raise InvalidTask for a queue that QUEUES does not declare."""


@overload
def is_ours(backend: BaseTaskBackend) -> TypeIs[QueueBackend]: ...
@overload
def is_ours(backend: type[BaseTaskBackend]) -> TypeIs[type[QueueBackend]]: ...
def is_ours(backend: BaseTaskBackend | type[BaseTaskBackend]) -> bool:
    """Return whether a backend, or a backend class, belongs to this package."""
    return issubclass(backend if isinstance(backend, type) else type(backend), QueueBackend)


def our_aliases() -> list[str]:
    """Return the aliases of our backends in TASKS, ``"default"`` first, without those that fail to import."""
    configured: Any = task_backends.settings
    if not isinstance(configured, Mapping):  # check E004 reports it
        return []
    return [
        alias
        for alias in sorted(configured, key=lambda alias: alias != "default")
        if (cls := backend_class(configured[alias])) is not None and is_ours(cls)
    ]


def backend_class(params: Any) -> type[BaseTaskBackend] | None:
    """Return the class of an entry of TASKS; None if it cannot be imported, which a system check reports."""
    try:
        cls = import_string(params["BACKEND"])
    except Exception:  # whatever the module raises while it is imported
        return None
    return cls if isinstance(cls, type) and issubclass(cls, BaseTaskBackend) else None


def resolve(alias: str) -> BaseTaskBackend:
    """Return the backend with this alias, which may be IMPLICIT. Raise InvalidTaskBackend if unknown."""
    return default_backend() if alias == IMPLICIT else task_backends[alias]


def default_backend() -> QueueBackend:
    """Return the backend for tasks that name none.

    This is ``TASKS["default"]`` if it is ours, else the first one that is ours, else the implicit backend.
    """
    global _default
    settings = task_backends.settings
    if _default is None or _default[0] is not settings:  # Django makes a new dict when TASKS is overridden
        ours = our_aliases()
        _default = settings, cast("QueueBackend", task_backends[ours[0]]) if ours else implicit_backend()
    return _default[1]


# The settings and the backend that follows from them. All threads share it, as our backend keeps no state.
_default: tuple[Any, QueueBackend] | None = None


@cache
def implicit_backend() -> QueueBackend:
    """Return the backend that accepts any queue and uses the router's database."""
    backend: QueueBackend = import_string(_IMPLICIT_ENTRY["BACKEND"])(IMPLICIT, {})
    return backend
