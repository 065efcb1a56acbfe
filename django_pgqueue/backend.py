"""The edge to ``django.tasks``: `PgQueueBackend`.

    TASKS = {"default": {"BACKEND": "django_pgqueue.backend.PgQueueBackend"}}

QUEUES, where given, are the only names that tasks may use; the default is any. ``OPTIONS`` takes
`database`: the alias that jobs are written to, where the task does not say (else the router says).

Django imports this module as soon as a task of its own decorator is declared on the backend. That may be
while apps load, so what needs the models is imported at its first use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from django.core.exceptions import ImproperlyConfigured
from django.db import connections, router

from . import results, validation
from .compat import DjangoTask, InvalidTask, TaskResult, TaskResultDoesNotExist, task_enqueued
from .conf import Settings
from .definition import DjangoMadeTask, Task, adopt, find_task
from .exceptions import UnknownTask
from .routing import IMPLICIT, QueueBackend, resolve

if TYPE_CHECKING:
    from .models import Job

_OPTIONS = ("database",)


class BadParameters(ImproperlyConfigured):
    """What is wrong with our entry in TASKS, and what to write instead."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(f"{message} {hint}")
        self.message = message
        self.hint = hint


class PgQueueBackend(QueueBackend):
    """Jobs in PostgreSQL. Keeps no state: Django makes one for each thread and async context."""

    task_class = DjangoMadeTask
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        """Raises ImproperlyConfigured for OPTIONS that are unknown, and for QUEUES that are no names."""
        where = f"TASKS[{alias!r}]"
        queues = _queues(where, params.get("QUEUES", ()))
        options = _options(where, params.get("OPTIONS", {}))
        super().__init__(alias, {**params, "QUEUES": queues, "OPTIONS": options})
        self.database: str | None = options.get("database")

    def home(self) -> str:
        """The alias of the backend's own database, where the public id of a job is its plain number."""
        if self.database is not None:
            return self.database
        from .models import Job

        return router.db_for_write(Job)

    def check_queue(self, task: DjangoTask[..., Any]) -> None:
        """Raise InvalidTask for a queue that QUEUES does not declare."""
        if self.queues and task.queue_name not in self.queues:
            raise InvalidTask(
                f"Queue '{task.queue_name}' is not valid for backend. TASKS[{self.alias!r}]['QUEUES'] "
                f"declares {', '.join(sorted(self.queues))}: add it, or leave QUEUES out to allow any name."
            )

    def validate_task(self, task: DjangoTask[..., Any]) -> None:
        """Raise InvalidTask unless `task` may be enqueued here. Cheap: most of it is known after once."""
        self.check_queue(task)
        if not isinstance(task, Task):  # Django asks about a task of another backend that comes by .using()
            task = adopt(task)
        task.check_reachable()

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> TaskResult[Any, Any]:
        """Write a job on the connection of the task's database; it commits with the transaction there."""
        from .lifecycle.enqueue import enqueue_task

        result = self._result_of(enqueue_task(adopt(task), args, kwargs), task)
        task_enqueued.send(type(self), task_result=result)
        return result

    async def aenqueue(self, task: Any, args: Any, kwargs: Any) -> TaskResult[Any, Any]:
        """Like `enqueue`, for async code."""
        from .lifecycle.enqueue import aenqueue_task

        result = self._result_of(await aenqueue_task(adopt(task), args, kwargs), task)
        await task_enqueued.asend(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> TaskResult[..., Any]:
        """The result with the id ``"5"``, or ``"other:5"`` off the backend's own database.

        Raises TaskResultDoesNotExist: for what is no id, for a job that retention has dropped, and for one
        whose task cannot be imported here.
        """
        from .models import Job

        home = self.home()
        try:
            alias, number = results.parse_id(str(result_id))
        except ValueError as error:
            raise TaskResultDoesNotExist(str(error)) from None
        if alias is not None and alias not in connections.settings:
            raise TaskResultDoesNotExist(f"{result_id!r} names a database that is not in DATABASES")
        try:
            job = Job.objects.using(alias or home).get(pk=number)
            definition = find_task(job.task_path)
        except Job.DoesNotExist:
            raise TaskResultDoesNotExist(f"There is no job {result_id!r}, or no longer.") from None
        except UnknownTask as error:
            raise TaskResultDoesNotExist(f"Job {result_id!r} is there, but {error}") from error
        return results.task_result(job, self._task_of(job, definition), self.alias, home=home)

    def _result_of(self, job: Job, task: Any) -> TaskResult[..., Any]:
        return results.task_result(job, task, self.alias, home=self.home())

    def _task_of(self, job: Job, definition: Task[..., Any]) -> Task[..., Any]:
        """`definition` with the options that `job` was enqueued with, through this backend.

        Nothing is validated: QUEUES may have changed since. A retry overwrites `run_after`: then it is left
        out.
        """
        unnamed = definition.backend == IMPLICIT and resolve(IMPLICIT).alias == self.alias
        delayed = not job.attempts and job.run_after > job.enqueued_at
        alias = job._state.db
        return definition.with_values(
            {
                "priority": job.priority,
                "queue_name": job.queue_name,
                "backend": IMPLICIT if unnamed else self.alias,
                "run_after": job.run_after if delayed else None,
                "run_after_delta": None,
                "metadata": job.metadata,
                "database": definition.database if alias in (None, self.home()) else alias,
            }
        )


def _queues(where: str, given: Any) -> list[str]:
    if isinstance(given, (str, bytes)) or not isinstance(given, (Sequence, set, frozenset)):
        example = [given] if isinstance(given, str) else ["default", "mail"]
        raise BadParameters(
            f"{where}['QUEUES'] must be a list of names, not {given!r}.",
            f'Write "QUEUES": {example}, or leave it out to allow any name.',
        )
    try:
        return [validation.queue_name(name) for name in given]
    except InvalidTask as error:
        raise BadParameters(f"{where}['QUEUES']: {error}", "Correct the name.") from None


def _options(where: str, given: Any) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        raise BadParameters(
            f"{where}['OPTIONS'] must be a dict, not {given!r}.",
            "Write \"OPTIONS\": {'database': 'default'}, or leave it out.",
        )
    if unknown := sorted(set(given) - {*_OPTIONS}, key=str):
        raise BadParameters(f"{where}['OPTIONS'] has no option {unknown[0]!r}.", _nearest(str(unknown[0])))
    try:
        validation.alias("database", given.get("database"))
    except InvalidTask as error:
        raise BadParameters(
            f"{where}['OPTIONS']: {error}", f"The aliases are {', '.join(connections.settings)}."
        ) from None
    return dict(given)


def _nearest(option: str) -> str:
    if near := get_close_matches(option.lower(), _OPTIONS, n=1):
        return f"Did you mean {near[0]!r}?"
    if near := get_close_matches(option.upper(), [field.name.upper() for field in fields(Settings)], n=1):
        return f"{near[0]!r} is the same for all backends and goes into PGQUEUE."
    return "The only option is 'database', an alias of DATABASES."
