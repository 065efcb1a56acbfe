"""Schedules to be shown, schedules whose runs have passed, and rounds that fire them, on any connection."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from django_pgqueue.models import Job, Schedule, ScheduleRun
from django_pgqueue.models.schedule import definition_of
from django_pgqueue.schedules.fire import fire_due

from .factories import ScheduleFactory, ago
from .sessions import Connection

__all__ = ["ago"]


def minute() -> datetime:
    """Return the start of this minute."""
    return datetime.now(UTC).replace(second=0, microsecond=0)


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
    return [run.run_at for run in ScheduleRun.objects.filter(schedule_id=str(schedule)).order_by("run_at")]


def outcomes(schedule: Schedule | str) -> list[str]:
    """Return what came of each run of a schedule, in order."""
    return [run.outcome for run in ScheduleRun.objects.filter(schedule_id=str(schedule)).order_by("run_at")]


def end(connection: Connection, job: int) -> None:
    """Cancel a job that has not started, so that it is over."""
    connection.execute("SELECT pgqueue_cancel(%s::bigint[])", ([job],))


#: 2100-01-01 00:00 UTC is a Friday. A next run that is so far away does not come while a test runs.
FAR = datetime(2100, 1, 1, 3, tzinfo=UTC)
PAST = datetime(2026, 11, 21, 3, tzinfo=UTC)
SHORT, NONE = timedelta(minutes=5), timedelta(0)


def create(name: str, *, using: str = "default", **columns: Any) -> Schedule:
    """Create a schedule: daily at three in UTC, unless `columns` say otherwise."""
    timing = {} if columns.get("every") else {"cron": "0 3 * * *"}
    call = {"task_path": "tests.app.tasks.mail", "args": [7]}
    schedule = Schedule(name=name, **{**timing, **call, "next_run_at": FAR, **columns})
    schedule.save(using=using, force_insert=True)
    return schedule


def declare(name: str, **changes: Any) -> Schedule:
    """Create a schedule that code declares, with `changes` that the admin has made."""
    schedule = create(name, source="code", declared_by="tests.app.tasks")
    schedule.declared = definition_of(schedule)
    for field, value in changes.items():
        setattr(schedule, field, value)
    schedule.save()
    return schedule


def run(schedule: Schedule, outcome: str = "enqueued", at: datetime = PAST, **columns: Any) -> ScheduleRun:
    """Create a run of a schedule."""
    runs = ScheduleRun.objects.using(schedule._state.db)
    return runs.create(schedule_id=schedule.pk, run_at=at, outcome=outcome, **columns)
