"""The same names for ``django.tasks`` of Django 6 and for the ``django-tasks`` package on older versions.

Type checkers always see ``django.tasks``. `Task` is generic in the stubs but not in Django itself.
`GenericTask` and `GenericResult` are base classes that are generic in both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, ParamSpec, TypeVar

import django

if TYPE_CHECKING:
    from django.tasks import TaskContext as TaskContext
    from django.tasks import TaskResult as TaskResult
    from django.tasks import TaskResultStatus as TaskResultStatus
    from django.tasks import task_backends as task_backends
    from django.tasks.backends.base import BaseTaskBackend as BaseTaskBackend
    from django.tasks.base import Task as DjangoTask
    from django.tasks.base import TaskError as TaskError
    from django.tasks.exceptions import InvalidTask as InvalidTask
    from django.tasks.exceptions import InvalidTaskBackend as InvalidTaskBackend
    from django.tasks.exceptions import TaskResultDoesNotExist as TaskResultDoesNotExist
    from django.tasks.exceptions import TaskResultMismatch as TaskResultMismatch
    from django.tasks.signals import task_enqueued as task_enqueued
    from django.tasks.signals import task_finished as task_finished
    from django.tasks.signals import task_started as task_started

    GenericTask = DjangoTask
    GenericResult = TaskResult
elif django.VERSION >= (6, 0):
    from django.tasks import TaskContext, TaskResult, TaskResultStatus, task_backends
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import Task as DjangoTask
    from django.tasks.base import TaskError
    from django.tasks.exceptions import (
        InvalidTask,
        InvalidTaskBackend,
        TaskResultDoesNotExist,
        TaskResultMismatch,
    )
    from django.tasks.signals import task_enqueued, task_finished, task_started

    P = ParamSpec("P")
    R = TypeVar("R")

    class GenericTask(DjangoTask, Generic[P, R]):
        """Django's Task, made subscriptable."""

        __slots__ = ()

    class GenericResult(TaskResult, Generic[P, R]):
        """Django's TaskResult, made subscriptable."""

        __slots__ = ()
else:
    try:
        from django_tasks import TaskContext, TaskResult, TaskResultStatus, task_backends
    except ModuleNotFoundError as error:
        raise ImportError(
            f"django_pgqueue on Django {django.get_version()} needs the package django-tasks, which provides "
            "django.tasks for Django versions older than 6.0. Run: pip install django-tasks"
        ) from error
    from django_tasks.backends.base import BaseTaskBackend
    from django_tasks.base import Task as DjangoTask
    from django_tasks.base import TaskError
    from django_tasks.exceptions import InvalidTaskBackendError as InvalidTaskBackend
    from django_tasks.exceptions import InvalidTaskError as InvalidTask
    from django_tasks.exceptions import TaskResultDoesNotExist, TaskResultMismatch

    # This import also makes the backport follow override_settings(TASKS=...).
    from django_tasks.signals import task_enqueued, task_finished, task_started

    P = ParamSpec("P")
    R = TypeVar("R")

    GenericTask = DjangoTask

    class GenericResult(TaskResult[R], Generic[P, R]):
        """The TaskResult of the backport, with the parameters of the stubs."""

        __slots__ = ()


__all__ = [
    "BaseTaskBackend",
    "DjangoTask",
    "GenericResult",
    "GenericTask",
    "InvalidTask",
    "InvalidTaskBackend",
    "TaskContext",
    "TaskError",
    "TaskResult",
    "TaskResultDoesNotExist",
    "TaskResultMismatch",
    "TaskResultStatus",
    "task_backends",
    "task_enqueued",
    "task_finished",
    "task_started",
]
