"""What ``django.tasks`` sees of a job: a TaskResult with one of four statuses."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar

from asgiref.sync import sync_to_async
from django.core.exceptions import ObjectDoesNotExist

from ..compat import DjangoTask, GenericResult, TaskError, TaskResultDoesNotExist, TaskResultStatus
from ..exceptions import WrongBackend
from ..redaction import redact, redact_call, redact_text
from ..tasks.links import public_id
from ..tasks.misuse import Habits
from ..tasks.routing import is_ours, resolve

if TYPE_CHECKING:
    from ..models import Job

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
        path = self.task.module_path
        args, kwargs = redact_call(self.args, self.kwargs, path)
        errors = [replace(error, traceback=redact_text(error.traceback, path)) for error in self.errors]
        shown = replace(self, args=args, kwargs=kwargs, errors=errors)
        object.__setattr__(shown, "_return_value", redact(getattr(self, "_return_value", None), path))
        return super(QueueTaskResult, shown).__repr__()

    @property
    def job(self) -> Job:
        """The job of this result, as it is now. Each use is a query. Raise TaskResultDoesNotExist."""
        backend = resolve(self.backend)
        if not is_ours(backend):
            raise WrongBackend(
                f"The result {self.id!r} has no job: TASKS[{self.backend!r}] is not a backend of "
                "django_pgqueue."
            )
        return backend.find_job(self.id)

    def join(self, timeout: float | timedelta | None = None) -> Self:
        """Wait until the job has finished, refresh this result, and return it. See `Job.join`.

        Raise TimeoutError if it is not finished after `timeout` (seconds or a timedelta; None: wait forever),
        and TaskResultDoesNotExist if there is no such job.
        """
        with _no_result():
            return self._refreshed(self.job.join(timeout))

    async def ajoin(self, timeout: float | timedelta | None = None) -> Self:
        """Like `join`, for async code."""
        job = await sync_to_async(lambda: self.job)()
        with _no_result():
            return self._refreshed(await job.ajoin(timeout))

    def _refreshed(self, job: Job) -> Self:
        now = task_result(job, self.task, self.backend)
        for each in fields(self):
            object.__setattr__(self, each.name, getattr(now, each.name))
        return self


@contextmanager
def _no_result() -> Iterator[None]:
    """Raise what Django raises for a job that does not exist."""
    try:
        yield
    except ObjectDoesNotExist as error:
        raise TaskResultDoesNotExist(str(error)) from None


_TIMES = ("enqueued_at", "started_at", "finished_at", "last_attempted_at")
_STATUSES = {
    "pending": TaskResultStatus.READY,
    "retry": TaskResultStatus.READY,
    "blocked": TaskResultStatus.READY,
    "running": TaskResultStatus.RUNNING,
    "done": TaskResultStatus.SUCCESSFUL,
    "failed": TaskResultStatus.FAILED,
    "cancelled": TaskResultStatus.FAILED,
}


def task_result(
    job: Job, task: DjangoTask[..., Any], backend_alias: str, *, is_kept: bool = True
) -> QueueTaskResult[..., Any]:
    """Return the TaskResult of `job`, a call of `task`, for the backend `backend_alias`. `django.tasks` has
    no status for a finished job that is no longer kept, which a unique key may find. It counts as successful.
    """
    errors = job.errors if is_kept else []
    result: QueueTaskResult[..., Any] = QueueTaskResult(
        task=task,
        id=public_id(job.pk, job._state.db),
        status=_STATUSES[job.status if is_kept else "done"],
        **{name: getattr(job, name) if is_kept else None for name in _TIMES},
        args=job.args if is_kept else [],
        kwargs=job.kwargs if is_kept else {},
        backend=backend_alias,
        errors=[TaskError(exception_class_path=e["class"], traceback=e["traceback"]) for e in errors],
        worker_ids=job.worker_ids if is_kept else [],
    )
    object.__setattr__(result, "_return_value", job.result if is_kept else None)
    return result
