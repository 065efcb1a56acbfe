"""The backend for ``django.tasks``: `PgQueueBackend`.

    TASKS = {"default": {"BACKEND": "django_pgqueue.backend.PgQueueBackend"}}

If QUEUES is set, tasks may use only these names; by default they may use any name. ``OPTIONS`` takes
`database`: the alias that jobs are written to if the task does not name one (default: the database router
decides).

Django imports this module when a task that uses its own decorator is declared with this backend. That may
happen while apps are loading, so code that needs the models is imported when it is first used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from difflib import get_close_matches
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any

from django.core.exceptions import ImproperlyConfigured
from django.db import connections, router

from .compat import DjangoTask, InvalidTask, TaskResult, TaskResultDoesNotExist, task_enqueued
from .conf import Settings
from .exceptions import UnknownTask
from .formatting import did_you_mean
from .jobs.results import task_result
from .tasks import options as validation
from .tasks.paths import check_path
from .tasks.routing import IMPLICIT, QueueBackend, resolve
from .tasks.task import BoundTask, DjangoMadeTask, Task, adopt, find_task

if TYPE_CHECKING:
    from .models import Job


class BadParameters(ImproperlyConfigured):
    """What is wrong with an entry of TASKS for this backend, and what to use instead."""

    def __str__(self) -> str:
        return " ".join(self.args)


class PgQueueBackend(QueueBackend):
    """Stores jobs in PostgreSQL. It has no state: Django creates one for each thread and async context."""

    task_class = DjangoMadeTask
    option_names: tuple[str, ...] = ("database",)
    """The keys that OPTIONS may have."""
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        """Raises ImproperlyConfigured for unknown OPTIONS and for invalid names in QUEUES."""
        where = f"TASKS[{alias!r}]"
        queues = _queues(where, params.get("QUEUES", ()))
        options = _options(where, params.get("OPTIONS", {}), self.option_names)
        super().__init__(alias, {**params, "QUEUES": queues, "OPTIONS": options})
        self.database: str | None = options.get("database")

    def home(self) -> str:
        """Return the alias of the database that jobs go to if their task names none."""
        if self.database is not None:
            return self.database
        from .models import Job

        return router.db_for_write(Job)

    def check_queue(self, task: DjangoTask[..., Any]) -> None:
        """Raise InvalidTask for a queue that is not in QUEUES."""
        if self.queues and task.queue_name not in self.queues:
            raise InvalidTask(
                f"Queue '{task.queue_name}' is not valid for backend. TASKS[{self.alias!r}]['QUEUES'] "
                f"declares {', '.join(sorted(self.queues))}: add it, or remove QUEUES to allow any name."
            )

    def validate_task(self, task: DjangoTask[..., Any]) -> None:
        """Raise InvalidTask unless `task` may be enqueued here. Most of this is cached."""
        self.check_queue(task)
        if not self.supports_async_task and iscoroutinefunction(task.func):  # a subclass may refuse them
            raise InvalidTask("Backend does not support async Tasks.")
        # Django also validates a task of another backend after .using().
        check_path(adopt(task).func)

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> TaskResult[Any, Any]:
        """Write a job with the connection of the task's database. It is part of the transaction there.

        If another job has the unique key of the call, this is the result of that job, and no signal is sent.
        """
        from .jobs.enqueue import enqueue_task
        from .tasks.call import after_hooks

        call = after_hooks(BoundTask(adopt(task), tuple(args), kwargs))
        task = adopt(call.task)
        job = enqueue_task(task, call.args, call.kwargs)
        return self.announce(task, job) if job.enqueue_outcome == "created" else self._result_of(job, task)

    def announce(self, task: Any, job: Job) -> TaskResult[Any, Any]:
        """Send `task_enqueued` and return the job's result; with `relay`, of the job which hands it over."""
        if job.task_path != task.module_path:
            task = find_task(job.task_path)
        result = self._result_of(job, task)
        task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> TaskResult[..., Any]:
        """Return the result with the id ``"5"``, or ``"other:5"`` for a job in another database.

        An id means the same job whichever backend is asked. Raises TaskResultDoesNotExist for an invalid id,
        for a job that was deleted after its retention, and for a job whose task cannot be imported here.
        """
        job = self.find_job(result_id)
        try:
            definition = find_task(job.task_path)
        except UnknownTask as error:
            raise TaskResultDoesNotExist(f"Job {result_id!r} exists, but {error}") from error
        return self._result_of(job, self._task_of(job, definition))

    def find_job(self, result_id: str) -> Job:
        """Return the job of the result with this id, as it is now. Raises TaskResultDoesNotExist."""
        from .models import Job
        from .models.changes import locate

        try:
            alias, number = locate(str(result_id))
        except ValueError as error:
            raise TaskResultDoesNotExist(str(error)) from None
        if connections[alias].vendor != "postgresql":
            raise TaskResultDoesNotExist(
                f"{result_id!r} is an id of the database {alias!r}, which has no jobs because it is not "
                f"PostgreSQL. Ids of other databases look like 'other:{number}'."
            )
        try:
            return Job.objects.using(alias).get(pk=number)
        except Job.DoesNotExist:
            raise TaskResultDoesNotExist(f"Job {result_id!r} does not exist, or was deleted.") from None

    def _result_of(self, job: Job, task: Any) -> TaskResult[..., Any]:
        return task_result(job, task, self.alias, is_kept=not job.get_deferred_fields())

    def _task_of(self, job: Job, definition: Task[..., Any]) -> Task[..., Any]:
        """Return `definition` with the options with which `job` was enqueued here. Nothing is validated:
        QUEUES may have changed. `run_after` is left out after a retry, which has overwritten it.
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
            f'Use "QUEUES": {example}, or remove it to allow any name.',
        )
    try:
        return [validation.queue_name(name) for name in given]
    except InvalidTask as error:
        raise BadParameters(f"{where}['QUEUES']: {error}", "Correct the name.") from None


def _options(where: str, given: Any, names: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        raise BadParameters(
            f"{where}['OPTIONS'] must be a dict, not {given!r}.",
            "Use \"OPTIONS\": {'database': 'default'}, or remove it.",
        )
    if unknown := sorted(set(given) - {*names}, key=str):
        name, hint = str(unknown[0]), "The only option is 'database', an alias of DATABASES."
        if near := get_close_matches(name.upper(), [field.name.upper() for field in fields(Settings)], n=1):
            hint = f"{near[0]!r} is the same for all backends. Set it in PGQUEUE."
        hint = did_you_mean(name.lower(), names, hint)
        raise BadParameters(f"{where}['OPTIONS'] has no option {unknown[0]!r}.", hint)
    try:
        validation.checked("database", given.get("database"))
    except InvalidTask as error:
        raise BadParameters(
            f"{where}['OPTIONS']: {error}", f"The aliases are {', '.join(connections.settings)}."
        ) from None
    return dict(given)
