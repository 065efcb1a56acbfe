"""Cancel, retry, run now, edit, extend: each runs one statement, for one job or for a queryset.

``models.job`` applies these statements to an id or to a queryset.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from django.db import connections
from django.db.models import QuerySet

from ..compat import TaskResult, for_async
from ..exceptions import WrongBackend
from ..exceptions import duration as seconds
from ..models import Job, Worker, changes
from ..postgres.aliases import write_alias
from ..tasks.links import parse_id
from ..tasks.routing import default_backend, is_ours, resolve

#: What is one job, although a string is an iterable.
_ONE = (Job, str, bytes, TaskResult)

if TYPE_CHECKING:
    OneJob = Job | int | str | TaskResult[Any, Any]
    Jobs = OneJob | QuerySet[Job] | Iterable[OneJob | QuerySet[Job]]


def cancel(jobs: Jobs, /) -> int:
    """Cancel jobs: a ``Job``, an id, a ``TaskResult``, a queryset of jobs, or an iterable of these.

    Jobs that have not started are cancelled at once. Running jobs are asked to stop: an async task is
    cancelled at its next ``await``, and a sync task can check ``current_job().cancel_requested``. Return the
    number of changed rows, which does not include finished jobs.
    """
    return _change(changes.CANCEL, jobs)


acancel = for_async(cancel)


def retry(jobs: Jobs, /, *, done: bool = False) -> int:
    """Run jobs again, now: a ``Job``, an id, a ``TaskResult``, a queryset of jobs, or an iterable of these.

    It stays the same job, with its id, attempts and errors. It gets a new budget of attempts, its crash count
    is reset, and its expiry is removed. Jobs that have succeeded run again only with ``done=True``. Running
    jobs do not change, and neither do those that wait for other jobs or in the wait queue of their limit key.
    A finished job stays in history if another job has its unique key. Return the number of changed rows.
    """
    return _change(changes.RETRY, jobs, bool(done))


aretry = for_async(retry)


def run_now(jobs: Jobs, /) -> int:
    """Run jobs now that wait for a later time, and change nothing else. Return the number of changed jobs."""
    return _change(changes.RUN_NOW, jobs)


arun_now = for_async(run_now)


def edit(
    jobs: Jobs,
    /,
    *,
    priority: int | None = None,
    run_after: datetime | timedelta | None = None,
    queue_name: str | None = None,
) -> int:
    """Change the priority, the time or the queue of jobs that wait: a ``Job``, an id, a ``TaskResult``, a
    queryset of jobs, or an iterable of these.

    What is left out stays as it is. The next claim sees the change. A due job that gets another queue or
    priority is due from now on, so it comes after the jobs that are due there already. Running and finished
    jobs do not change. Return the number of changed rows.

    Raise ``TypeError`` if there is nothing to change, and ``ValueError`` for a bad value.
    """
    return _change(changes.EDIT, jobs, *changes.edit_values(priority, run_after, queue_name))


aedit = for_async(edit)


def extend(jobs: Jobs, duration: float | timedelta, /) -> int:
    """Let running jobs run ``duration`` (seconds or a timedelta) more from now: a ``Job``, an id, a
    ``TaskResult``, a queryset of jobs, or an iterable of these.

    Later deadlines do not change, and a job without a timeout does not get one. Return how many of the jobs
    are running. The worker reads the deadline again before it times a job out, so an extension works until
    that moment. Raise ``TypeError`` or ``ValueError`` if this is not a duration of up to 100 years.
    """
    return _change(changes.EXTEND, jobs, seconds("extend(jobs, duration)", duration))


aextend = for_async(extend)


def _change(statement: str, jobs: Any, *more: Any) -> int:
    given = [jobs] if isinstance(jobs, (*_ONE, QuerySet)) or not isinstance(jobs, Iterable) else list(jobs)
    changed, ids = 0, dict[str, list[int]]()
    for each in given:
        if isinstance(each, QuerySet):
            changed += changes.change_all(statement, _of_jobs(each), *more)
        else:
            alias, pk = locate(each)
            ids.setdefault(alias, []).append(pk)
    return changed + sum(changes.change_ids(statement, alias, ids[alias], *more) for alias in ids)


def _of_jobs(rows: QuerySet[Any]) -> QuerySet[Any]:
    if not issubclass(rows.model, Job):
        raise TypeError(
            f"A queryset of {rows.model.__name__} does not contain jobs. Use one of Job, such as "
            "Job.objects.filter(...)."
        )
    return rows


def locate(job: Any) -> tuple[str, int]:
    """Return the alias that a job is changed with, and its primary key. It is given as a ``Job``, an id or a
    ``TaskResult``.

    A string is the public id of a job, as ``TaskResult.id``. An int is a primary key, as in
    ``JobList.ids``, in the database that jobs go to by default.
    """
    if isinstance(job, Job):
        return write_alias(job), job.pk
    if isinstance(job, int) and not isinstance(job, bool):
        return default_backend().home(), parse_id(str(job))[1]
    if not isinstance(job, (str, TaskResult)):
        raise TypeError(
            "Expected a Job, an id, a TaskResult, a queryset of jobs, or an iterable of these, not "
            f"{job!r:.200}."
        )
    if isinstance(job, TaskResult) and not is_ours(backend := resolve(job.backend)):
        raise WrongBackend(
            f"The result {job.id!r} comes from the backend {backend.alias!r}, which is not one of "
            "django_pgqueue."
        )
    public = job if isinstance(job, str) else job.id
    alias, pk = parse_id(public)
    if alias not in connections.settings:
        raise ValueError(f"The id {public!r} names the database {alias!r}, which is not in DATABASES.")
    return alias, pk


# ----------------------------------------------------------------------------
# Drain a worker: ask it to finish its jobs and end. It hears of it when the caller's transaction commits.

_DRAIN = "SELECT pgqueue_drain_worker_v1(%s, %s)"


def drain_worker(worker: Worker | int, /, *, replace: bool = True, using: str | None = None) -> bool:
    """Ask a worker process to finish its jobs and end, as SIGTERM does. Return whether it is registered.

    ``worker``: a row of ``Worker``, or its id. Its supervisor starts a new process in its place; with
    ``replace=False``, the supervisor and all of its processes end. A worker in another language has no
    supervisor, so it ends in both cases. The request cannot be taken back. ``using``: the alias of the
    database; by default, that of the row, or of the default backend.

    Raise ``TypeError`` or ``ValueError`` for a bad value.
    """
    pk = worker.pk if isinstance(worker, Worker) else worker
    if isinstance(pk, bool) or not isinstance(pk, int):
        raise TypeError(f"drain_worker(worker) takes a Worker or its id, not {pk!r:.100}.")
    if not -(2**63) <= pk < 2**63:
        raise ValueError(f"drain_worker(worker): {pk} is not the id of a worker, which has 64 bits.")
    if not isinstance(replace, bool):
        raise TypeError(f"drain_worker(replace=...) takes True or False, not {replace!r:.100}.")
    alias = using or (write_alias(worker) if isinstance(worker, Worker) else default_backend().home())
    with connections[alias].cursor() as cursor:
        cursor.execute(_DRAIN, (pk, replace))
        found: tuple[Any, ...] | None = cursor.fetchone()
    assert found is not None
    return bool(found[0])


adrain_worker = for_async(drain_worker)
