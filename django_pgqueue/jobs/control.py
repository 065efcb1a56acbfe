"""Cancel, retry, run now, edit, extend: each runs one statement, for one job or for a queryset.

``models.job`` applies these statements to an id or to a queryset.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from asgiref.sync import sync_to_async
from django.db import connections
from django.db.models import QuerySet

from ..compat import TaskResult
from ..exceptions import WrongBackend, duration
from ..models import Job, Worker
from ..models import job as changes
from ..postgres.aliases import write_alias
from ..tasks import results
from ..tasks.routing import default_backend, is_ours, resolve

__all__ = [
    "acancel",
    "adrain",
    "aedit",
    "aextend",
    "aretry",
    "arun_now",
    "cancel",
    "drain",
    "edit",
    "extend",
    "locate",
    "retry",
    "run_now",
]


if TYPE_CHECKING:
    from datetime import datetime, timedelta

    Jobs = Job | int | str | TaskResult[Any, Any] | QuerySet[Job]


def cancel(jobs: Jobs, /) -> int:
    """Cancel a job (a ``Job``, an id, a ``TaskResult``) or a queryset of jobs.

    Jobs that have not started are cancelled at once. Running jobs are asked to stop: an async task is
    cancelled at its next ``await``, and a sync task can check ``current_job().cancel_requested``. Return the
    number of changed rows, which does not include finished jobs.
    """
    return _change(changes.CANCEL, jobs)


async def acancel(jobs: Jobs, /) -> int:
    """Like ``cancel()``, for async code."""
    return await sync_to_async(cancel)(jobs)


def retry(jobs: Jobs, /) -> int:
    """Run a job (a ``Job``, an id, a ``TaskResult``) or a queryset of jobs again, now.

    It stays the same job, with its id, attempts and errors. It gets a new budget of attempts, its crash count
    is reset, and its expiry is removed. Running jobs do not change, and neither do those that wait for other
    jobs or in the line of their concurrency key. A job that is over stays in history if another job has its
    unique key. Return the number of changed rows.
    """
    return _change(changes.RETRY, jobs)


async def aretry(jobs: Jobs, /) -> int:
    """Like ``retry()``, for async code."""
    return await sync_to_async(retry)(jobs)


def run_now(jobs: Jobs, /) -> int:
    """Run jobs now that wait for a later time, and change nothing else. Return the number of changed jobs."""
    return _change(changes.RUN_NOW, jobs)


async def arun_now(jobs: Jobs, /) -> int:
    """Like ``run_now()``, for async code."""
    return await sync_to_async(run_now)(jobs)


def edit(
    jobs: Jobs,
    /,
    *,
    priority: int | None = None,
    run_after: datetime | timedelta | None = None,
    queue_name: str | None = None,
) -> int:
    """Change the priority, the time or the queue of jobs that wait (a ``Job``, an id, a ``TaskResult``, a
    queryset).

    What is left out stays as it is. The next claim sees the change. A due job that gets another queue or
    priority is due from now on, so it comes after the jobs that are due there already. Running jobs and jobs
    that are over do not change. Return the number of changed rows.

    Raise ``TypeError`` if there is nothing to change, and ``InvalidTask`` for a bad value.
    """
    return _change(changes.EDIT, jobs, *changes.edit_values(priority, run_after, queue_name))


async def aedit(
    jobs: Jobs,
    /,
    *,
    priority: int | None = None,
    run_after: datetime | timedelta | None = None,
    queue_name: str | None = None,
) -> int:
    """Like ``edit()``, for async code."""
    return await sync_to_async(edit)(jobs, priority=priority, run_after=run_after, queue_name=queue_name)


def extend(jobs: Jobs, seconds: float | timedelta, /) -> int:
    """Let running jobs (a ``Job``, an id, a ``TaskResult``, a queryset) run ``seconds`` more from now.

    Later deadlines do not change, and a job without a timeout does not get one. Return how many of the jobs
    are running. The worker reads the deadline again before it times a job out, so an extension works until
    that moment. Raise ``TypeError`` or ``ValueError`` if ``seconds`` is not a duration of up to 100 years.
    """
    more = duration("extend(jobs, seconds)", seconds)
    return _change(changes.EXTEND, jobs, more)


async def aextend(jobs: Jobs, seconds: float | timedelta, /) -> int:
    """Like ``extend()``, for async code."""
    return await sync_to_async(extend)(jobs, seconds)


def _change(statement: str, jobs: Jobs, *more: Any) -> int:
    if not isinstance(jobs, QuerySet):
        alias, pk = locate(jobs)
        return changes.change_one(statement, alias, pk, *more)
    if not issubclass(jobs.model, Job):
        raise TypeError(
            f"A queryset of {jobs.model.__name__} does not contain jobs. Use one of Job, such as "
            "Job.objects.filter(...)."
        )
    return changes.change_all(statement, jobs, *more)


def locate(job: Any) -> tuple[str, int]:
    """Return the alias that a job is changed with, and its primary key. It is given as a ``Job``, an id or a
    ``TaskResult``.

    A string is the public id of a job, as ``TaskResult.id``. An int is a primary key, as ``enqueue_many``
    returns it, in the database that jobs go to by default.
    """
    if isinstance(job, Job):
        return write_alias(job), job.pk
    if isinstance(job, int) and not isinstance(job, bool):
        return default_backend().home(), results.parse_id(str(job))[1]
    if not isinstance(job, (str, TaskResult)):
        raise TypeError(f"Expected a Job, an id, a TaskResult or a queryset of jobs, not {job!r}.")
    if isinstance(job, TaskResult) and not is_ours(backend := resolve(job.backend)):
        raise WrongBackend(
            f"The result {job.id!r} comes from the backend {backend.alias!r}, which is not one of "
            "django_pgqueue."
        )
    public = job if isinstance(job, str) else job.id
    alias, pk = results.parse_id(public)
    if alias not in connections.settings:
        raise ValueError(f"The id {public!r} names the database {alias!r}, which is not in DATABASES.")
    return alias, pk


# ----------------------------------------------------------------------------
# Drain a worker: ask it to finish its jobs and end. It hears of it when the caller's transaction commits.

if TYPE_CHECKING:
    How = Literal["replace", "stop"]


_HOWS = ("replace", "stop")
_DRAIN = "SELECT pgqueue_drain_v1(%s, %s)"


def drain(worker: Worker | int, how: How = "replace", *, using: str | None = None) -> bool:
    """Ask a worker process to finish its jobs and end, as SIGTERM does. Return whether it is registered.

    ``worker``: a row of ``Worker``, or its id. ``"replace"``: its supervisor starts a new process in its
    place. ``"stop"``: the supervisor and all of its processes end. A worker in another language has no
    supervisor, so it ends in both cases. The request cannot be taken back. ``using``: the alias of the
    database; by default, that of the row, or of the default backend.

    Raise ``TypeError`` or ``ValueError`` for a bad value.
    """
    pk = worker.pk if isinstance(worker, Worker) else worker
    if isinstance(pk, bool) or not isinstance(pk, int):
        raise TypeError(f"drain(worker) takes a Worker or its id, not {pk!r:.100}.")
    if not -(2**63) <= pk < 2**63:
        raise ValueError(f"drain(worker): {pk} is not the id of a worker, which has 64 bits.")
    if how not in _HOWS:
        raise ValueError(f"drain(how=...) must be 'replace' or 'stop', not {how!r:.100}.")
    alias = using or (write_alias(worker) if isinstance(worker, Worker) else default_backend().home())
    with connections[alias].cursor() as cursor:
        cursor.execute(_DRAIN, (pk, how))
        found: tuple[Any, ...] | None = cursor.fetchone()
    assert found is not None
    return bool(found[0])


async def adrain(worker: Worker | int, how: How = "replace", *, using: str | None = None) -> bool:
    """Like ``drain()``, for async code."""
    return await sync_to_async(drain)(worker, how, using=using)
