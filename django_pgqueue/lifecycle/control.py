"""Cancel, retry, run now, extend: one statement each, whatever they are given.

What the statements do to one id, or to a queryset, is in ``models.changes``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asgiref.sync import sync_to_async
from django.db import connections, router
from django.db.models import QuerySet

from .. import results
from ..compat import TaskResult
from ..exceptions import WrongBackend, duration
from ..models import Job, changes
from ..routing import default_backend, is_ours, resolve

if TYPE_CHECKING:
    from datetime import timedelta

    Jobs = Job | int | str | TaskResult[Any, Any] | QuerySet[Job]

__all__ = ["acancel", "aextend", "aretry", "arun_now", "cancel", "extend", "retry", "run_now"]


def cancel(jobs: Jobs, /) -> int:
    """Cancel a job (a ``Job``, an id, a ``TaskResult``) or a queryset of jobs.

    What has not started is cancelled at once. What runs is asked to stop: an async task is cancelled at its
    next ``await``, a sync one finds ``current_job().cancel_requested``. Returns how many rows changed; jobs
    that are over already do not count.
    """
    return _change(changes.CANCEL, jobs)


async def acancel(jobs: Jobs, /) -> int:
    """Like ``cancel()``, for async code."""
    return await sync_to_async(cancel)(jobs)


def retry(jobs: Jobs, /) -> int:
    """Run a job (a ``Job``, an id, a ``TaskResult``) or a queryset of jobs again, now.

    It is the same job: id, attempts and errors stay; the budget of attempts, the count of crashes and the
    expiry start afresh. Running jobs are left alone. Returns how many rows changed.
    """
    return _change(changes.RETRY, jobs)


async def aretry(jobs: Jobs, /) -> int:
    """Like ``retry()``, for async code."""
    return await sync_to_async(retry)(jobs)


def run_now(jobs: Jobs, /) -> int:
    """Let jobs that wait for a later time run now; nothing else about them changes. Returns how many did."""
    return _change(changes.RUN_NOW, jobs)


async def arun_now(jobs: Jobs, /) -> int:
    """Like ``run_now()``, for async code."""
    return await sync_to_async(run_now)(jobs)


def extend(jobs: Jobs, seconds: float | timedelta, /) -> int:
    """Let running jobs (a ``Job``, an id, a ``TaskResult``, a queryset) run ``seconds`` more from now.

    Deadlines that are later stay, and a job without a timeout stays without one. Returns how many of the jobs
    run. The worker reads the deadline before it acts on it, so a job is reached in time until that moment.
    Raises ``TypeError`` or ``ValueError`` if ``seconds`` is no duration of up to 100 years.
    """
    more = duration("extend(jobs, seconds)", seconds)
    return _change(changes.EXTEND, jobs, more)


async def aextend(jobs: Jobs, seconds: float | timedelta, /) -> int:
    """Like ``extend()``, for async code."""
    return await sync_to_async(extend)(jobs, seconds)


def _change(statement: str, jobs: Jobs, *more: Any) -> int:
    if not isinstance(jobs, QuerySet):
        alias, pk = _locate(jobs)
        return changes.change_one(statement, alias, pk, *more)
    if not issubclass(jobs.model, Job):
        raise TypeError(f"a queryset of {jobs.model.__name__} holds no jobs: Job.objects.filter(...) does")
    return changes.change_all(statement, jobs, *more)


def _locate(job: Any) -> tuple[str, int]:
    """The alias and the key of one job, given as a ``Job``, an id or a ``TaskResult``."""
    if isinstance(job, Job):
        return job._state.db or router.db_for_write(Job), job.pk
    if isinstance(job, TaskResult):
        backend, public = resolve(job.backend), job.id
    elif isinstance(job, str) or (isinstance(job, int) and not isinstance(job, bool)):
        backend, public = default_backend(), str(job)
    else:
        raise TypeError(f"expected a Job, its id, a TaskResult or a queryset of jobs, not {job!r}")
    if not is_ours(backend):
        raise WrongBackend(f"the result {public!r} comes from the backend {backend.alias!r}, not from ours")
    alias, pk = results.parse_id(public)
    if alias is not None and alias not in connections.settings:
        raise ValueError(f"{public!r} names a database {alias!r}, which is not in DATABASES")
    return alias or backend.home(), pk
