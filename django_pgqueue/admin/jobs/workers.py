"""The workers of jobs, by name, and whether a running job has lost its worker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db.models import OuterRef, Subquery
from django.db.models.functions import Now

from ...models import Worker
from ...models.job import Status
from ...vitals import is_dead, with_age

if TYPE_CHECKING:
    from collections.abc import Iterable

    from django.db.models import QuerySet

__all__ = ["has_lost_its_worker", "short_name", "with_clock", "workers_named"]


def with_clock(jobs: QuerySet[Any]) -> QuerySet[Any]:
    """Annotate jobs with the time ``now`` on the clock of the database, and with the ``silence`` of the
    worker: the time since its last heartbeat, or None if the worker no longer exists.
    """
    worker = with_age(Worker.objects.filter(pk=OuterRef("worker")))
    timed: QuerySet[Any] = jobs.annotate(now=Now(), silence=Subquery(worker.values("age")))
    return timed


def has_lost_its_worker(job: Any) -> bool:
    """Return whether the worker of a running job ``with_clock`` no longer exists, or is silent for over
    LEASE.
    """
    if job.status != Status.RUNNING:
        return False
    return job.silence is None or is_dead(job.silence)


def short_name(worker: int) -> str:
    """Return a short name for a worker that no longer exists, so that two of them can be distinguished."""
    return f"{worker:x}".removeprefix("-")[:6]


def workers_named(alias: str, ids: Iterable[int]) -> dict[int, Worker]:
    """Return those of the workers that still exist."""
    return Worker.objects.using(alias).in_bulk(list(ids))
