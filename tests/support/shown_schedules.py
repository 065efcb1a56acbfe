"""Schedules for the tests of what people see of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from django_pgqueue.models import Schedule, ScheduleRun
from django_pgqueue.models.schedule import definition_of

__all__ = ["FAR", "NONE", "PAST", "SHORT", "create", "declare", "run"]

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
