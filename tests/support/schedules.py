"""Schedules whose runs have passed, and rounds that fire them, on any connection."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from django_pgqueue.models import Job, Schedule, ScheduleRun
from django_pgqueue.schedules.fire import fire_due

from .factories import ScheduleFactory
from .sessions import Connection

__all__ = ["ago", "end", "fire", "jobs_of", "minute", "outcomes", "overdue", "rows_of", "runs_of"]


def minute() -> datetime:
    """Return the start of this minute."""
    return datetime.now(UTC).replace(second=0, microsecond=0)


def ago(**duration: float) -> datetime:
    """Return a time in the past."""
    return datetime.now(UTC) - timedelta(**duration)


def overdue(since: datetime | None = None, **columns: Any) -> Schedule:
    """Make a schedule whose run at ``since`` (default: the start of this minute) nobody has fired yet."""
    run = since or minute()
    schedule = ScheduleFactory.create(**columns)
    Schedule.objects.filter(pk=schedule.pk).update(
        next_run_at=run, since=run - timedelta(days=400), last_run_at=None
    )
    schedule.refresh_from_db()
    return schedule


def rows_of(connection: Connection) -> Callable[[str, Any], list[Any]]:
    """Return the function that runs the statements of a round on this connection."""
    return lambda query, parameters: connection.execute(query, parameters).fetchall()


def fire(connection: Connection, broken: dict[str, str] | None = None) -> int:
    """Run one round. Return how many schedules were moved on."""
    return fire_due(rows_of(connection), {} if broken is None else broken)


def jobs_of(schedule: Schedule | str) -> list[Job]:
    """Return the jobs of a schedule, in order."""
    return list(Job.objects.filter(metadata__schedule=str(schedule)).order_by("id"))


def runs_of(schedule: Schedule | str) -> list[datetime]:
    """Return the recorded runs of a schedule, in order."""
    found = ScheduleRun.objects.filter(schedule_id=str(schedule)).order_by("run_at")
    return [run.run_at for run in found]


def outcomes(schedule: Schedule | str) -> list[str]:
    """Return what came of each run of a schedule, in order."""
    return [run.outcome for run in ScheduleRun.objects.filter(schedule_id=str(schedule)).order_by("run_at")]


def end(connection: Connection, job: int) -> None:
    """Cancel a job that has not started, so that it is over."""
    connection.execute("SELECT pgqueue_cancel(%s::bigint[])", ([job],))
