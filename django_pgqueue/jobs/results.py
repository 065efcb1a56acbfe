"""What ``django.tasks`` sees of a job: a TaskResult with one of four statuses."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from ..compat import DjangoTask, GenericResult, TaskError, TaskResultStatus
from ..exceptions import WrongBackend
from ..redaction import redact, redact_call, redact_text
from ..tasks.links import public_id
from ..tasks.misuse import Habits
from ..tasks.routing import is_ours, resolve

if TYPE_CHECKING:
    from datetime import timedelta
    from typing import Self

    from ..models import Job
    from ..tasks.routing import QueueBackend

#: The fields that are redacted.
_REDACTED = ("args", "kwargs", "errors", "_return_value")

P = ParamSpec("P")
R = TypeVar("R")


class QueueTaskResult(Habits, GenericResult[P, R]):
    """A `TaskResult` of this package's backend, with its job, and two more methods.

    It has no fields of its own, so that it is equal, copied and pickled like Django's.
    """

    __slots__ = ()
    _kind = "a result"

    def __repr__(self) -> str:
        """Show the arguments, the result and the errors redacted, because this ends up in logs and shells."""
        path, shown = self.task.module_path, copy(self)
        args, kwargs = redact_call(self.args, self.kwargs, path)
        errors = [replace(error, traceback=redact_text(error.traceback, path)) for error in self.errors]
        result = redact(getattr(self, "_return_value", None), path)
        for name, value in zip(_REDACTED, (args, kwargs, errors, result), strict=True):
            object.__setattr__(shown, name, value)
        return super(QueueTaskResult, shown).__repr__()

    @property
    def job(self) -> Job:
        """The job of this result, as it is now: each use is a query. Raise TaskResultDoesNotExist."""
        job: Job = self._backend("find its job").job_of(self)
        return job

    def join(self, timeout: float | timedelta | None = None) -> Self:
        """Wait until the job has finished, refresh this result, and return it. See `Job.join`.

        Raise TimeoutError if it is not over after `timeout` (seconds or a timedelta; None: wait forever), and
        TaskResultDoesNotExist if there is no such job.
        """
        self._backend("wait for its job").join(self, timeout)
        return self

    async def ajoin(self, timeout: float | timedelta | None = None) -> Self:
        """Like `join`, for async code."""
        await self._backend("wait for its job").ajoin(self, timeout)
        return self

    def _backend(self, what: str) -> QueueBackend:
        backend = resolve(self.backend)
        if not is_ours(backend):
            raise WrongBackend(
                f"The result {self.id!r} cannot {what}: TASKS[{self.backend!r}] is not a backend "
                "of django_pgqueue."
            )
        return backend


_STATUSES = {
    "pending": TaskResultStatus.READY,
    "retry": TaskResultStatus.READY,
    "blocked": TaskResultStatus.READY,
    "running": TaskResultStatus.RUNNING,
    "done": TaskResultStatus.SUCCESSFUL,
    "failed": TaskResultStatus.FAILED,
    "cancelled": TaskResultStatus.FAILED,
}


def task_result(job: Job, task: DjangoTask[..., Any], backend_alias: str) -> QueueTaskResult[..., Any]:
    """Return the TaskResult of `job`, which is a call of `task`, for the backend `backend_alias`."""
    result: QueueTaskResult[..., Any] = QueueTaskResult(
        task=task,
        id=public_id(job.pk, job._state.db),
        status=_STATUSES[job.status],
        enqueued_at=job.enqueued_at,
        started_at=job.started_at,
        finished_at=job.finished_at,
        last_attempted_at=job.last_attempted_at,
        args=job.args,
        kwargs=job.kwargs,
        backend=backend_alias,
        errors=[TaskError(exception_class_path=e["class"], traceback=e["traceback"]) for e in job.errors],
        worker_ids=job.worker_ids,
    )
    object.__setattr__(result, "_return_value", job.result)
    return result


def forgotten_result(job: Job, task: DjangoTask[..., Any], backend_alias: str) -> QueueTaskResult[..., Any]:
    """Return a result for a job of which only the id is known, because it is over and no longer kept.

    Such a job is found by an enqueue within the window of its unique key. Nothing is known about how it
    ended, and `django.tasks` has no status for that, so it counts as successful.
    """
    result: QueueTaskResult[..., Any] = QueueTaskResult(
        task=task,
        id=public_id(job.pk, job._state.db),
        status=TaskResultStatus.SUCCESSFUL,
        enqueued_at=None,
        started_at=None,
        finished_at=None,
        last_attempted_at=None,
        args=[],
        kwargs={},
        backend=backend_alias,
        errors=[],
        worker_ids=[],
    )
    return result
