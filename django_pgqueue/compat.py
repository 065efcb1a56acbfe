"""The same names for ``django.tasks`` of Django 6 and for the ``django-tasks`` package on older versions.

Type checkers always see ``django.tasks``. `Task` is generic in the stubs but not in Django itself.
`GenericTask` and `GenericResult` are base classes that are generic in both.

On Django 6, ``django-tasks`` may be installed as well: packages that support older versions import it, as
Wagtail does. Its tasks reach our backend, because both read TASKS. The last part lets that work: what we
raise is also an exception of the backport, its signals are sent, and its tasks and backends are known.

``for_async`` makes the twin of a function for async code.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from functools import wraps
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

import django
from asgiref.sync import sync_to_async

P = ParamSpec("P")
R = TypeVar("R")

if TYPE_CHECKING:
    from typing_extensions import TypeIs

if TYPE_CHECKING or django.VERSION >= (6, 0):
    from django.tasks import TaskContext, TaskResult, TaskResultStatus, task_backends
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import Task as DjangoTask, TaskError
    from django.tasks.exceptions import InvalidTask, InvalidTaskBackend, TaskResultDoesNotExist
    from django.tasks.signals import task_enqueued, task_finished, task_started
else:
    try:
        from django_tasks import TaskContext, TaskResult, TaskResultStatus, task_backends
    except ModuleNotFoundError as error:
        raise ImportError(
            f"django_pgqueue on Django {django.get_version()} needs the package django-tasks, which provides "
            "django.tasks for Django versions older than 6.0. Run: pip install django-tasks"
        ) from error
    from django_tasks import exceptions
    from django_tasks.backends.base import BaseTaskBackend
    from django_tasks.base import Task as DjangoTask, TaskError
    from django_tasks.exceptions import TaskResultDoesNotExist

    # This import also makes the backport follow override_settings(TASKS=...).
    from django_tasks.signals import task_enqueued, task_finished, task_started

    # Version 0.12 calls them differently; later ones use the names of Django.
    InvalidTask = getattr(exceptions, "InvalidTask", None) or exceptions.InvalidTaskError
    InvalidTaskBackend = getattr(exceptions, "InvalidTaskBackend", None) or exceptions.InvalidTaskBackendError

if TYPE_CHECKING:
    GenericTask = DjangoTask
    GenericResult = TaskResult
elif django.VERSION >= (6, 0):

    class GenericTask(DjangoTask, Generic[P, R]):
        """Django's Task, made subscriptable."""

        __slots__ = ()

    class GenericResult(TaskResult, Generic[P, R]):
        """Django's TaskResult, made subscriptable."""

        __slots__ = ()
else:
    GenericTask = DjangoTask

    class GenericResult(TaskResult[R], Generic[P, R]):
        """The TaskResult of the backport, with the parameters of the stubs."""

        __slots__ = ()


PACKAGES = ["django.tasks" if django.VERSION >= (6, 0) else "django_tasks"]
"""The packages that provide the interface here. The first one is that of the names above."""
#: What any backend raises for an invalid task. To catch it, not to raise it.
INVALID_TASKS: tuple[type[Exception], ...] = (InvalidTask,)
_TASKS: tuple[type[Any], ...] = (DjangoTask,)
_BACKENDS: tuple[type[Any], ...] = (BaseTaskBackend,)


def is_task(value: object) -> TypeIs[DjangoTask[..., Any]]:
    """Return whether this is a task, ours or another."""
    return isinstance(value, _TASKS)


def is_backend_class(value: object) -> TypeIs[type[BaseTaskBackend]]:
    """Return whether this is the class of a backend, ours or another."""
    return isinstance(value, type) and issubclass(value, _BACKENDS)


def _backport() -> Any:
    """Return the package if it is installed in addition and can be used; otherwise None."""
    if django.VERSION < (6, 0) or find_spec("django_tasks") is None:
        return None
    try:
        for name in ("base", "backends.base", "exceptions", "signals"):
            import_module(f"django_tasks.{name}")
    except Exception as error:  # an old version may not fit this Django; its tasks could not be used either
        logging.getLogger(__name__).warning("django_tasks is installed, but cannot be imported: %r", error)
        return None
    return import_module("django_tasks")


if not TYPE_CHECKING and (backport := _backport()) is not None:
    PACKAGES.append("django_tasks")
    _theirs = getattr(backport.exceptions, "InvalidTask", None) or backport.exceptions.InvalidTaskError
    INVALID_TASKS = (InvalidTask, _theirs)
    _TASKS = (DjangoTask, backport.base.Task)
    _BACKENDS = (BaseTaskBackend, backport.backends.base.BaseTaskBackend)

    class InvalidTask(InvalidTask, _theirs):
        """That of Django and that of the backport."""

    class TaskResultDoesNotExist(TaskResultDoesNotExist, backport.exceptions.TaskResultDoesNotExist):
        """That of Django and that of the backport."""

    class _Both:
        """A signal of Django and that of the backport."""

        def __init__(self, name: str) -> None:
            self._signals = [getattr(import_module(f"{each}.signals"), name) for each in PACKAGES]

        @property
        def receivers(self) -> list[Any]:
            """The receivers of the signal that has more of them."""
            return max((each.receivers for each in self._signals), key=len)

        def send(self, sender: Any, **named: Any) -> list[tuple[Any, Any]]:
            """Send both."""
            return [pair for each in self._signals for pair in each.send(sender, **named)]

        def send_robust(self, sender: Any, **named: Any) -> list[tuple[Any, Any]]:
            """Send both. The exceptions of receivers are among what is returned."""
            return [pair for each in self._signals for pair in each.send_robust(sender, **named)]

    task_enqueued, task_started, task_finished = map(
        _Both, ("task_enqueued", "task_started", "task_finished")
    )

#: The receivers of the packages themselves, which log.
_LOGGING = {
    id(value)
    for each in PACKAGES
    for name, value in vars(import_module(f"{each}.signals")).items()
    if name.startswith("log_task_")
}


def is_heard(signal: Any) -> bool:
    """Return whether `task_enqueued` has a receiver besides that of Django."""
    return any(receiver[0][0] not in _LOGGING for receiver in signal.receivers)


__all__ = [
    "INVALID_TASKS", "PACKAGES", "BaseTaskBackend", "DjangoTask", "GenericResult", "GenericTask",
    "InvalidTask", "InvalidTaskBackend", "TaskContext", "TaskError", "TaskResult", "TaskResultDoesNotExist",
    "TaskResultStatus", "for_async", "is_backend_class", "is_heard", "is_task",
    "task_backends", "task_enqueued", "task_finished", "task_started",
]  # fmt: skip


def for_async(function: Callable[P, R]) -> Callable[P, Coroutine[Any, Any, R]]:
    """Return the twin of a function or a method for async code: ``acancel = for_async(cancel)``."""

    @wraps(function)
    async def twin(*args: P.args, **kwargs: P.kwargs) -> R:
        return await sync_to_async(function)(*args, **kwargs)

    name = function.__name__
    twin.__name__ = f"a{name}"
    twin.__qualname__ = f"{function.__qualname__.removesuffix(name)}a{name}"
    twin.__doc__ = f"Like ``{name}()``, for async code."
    return twin
