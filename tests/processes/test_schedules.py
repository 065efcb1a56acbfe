"""Schedules and real workers: two supervisors, one of which is killed, fire each tick once and in time."""

from __future__ import annotations

import signal
from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise

import pytest
from django.core.management import call_command

from django_pgqueue.models import Job, Schedule, ScheduleTick
from tests.support.commands import SLOW, Command
from tests.support.factories import ScheduleFactory
from tests.support.schedules import jobs_of, minute, outcomes, overdue
from tests.support.workers import until


def test_ticks_are_fired_once_and_in_time(start: Callable[..., Command]) -> None:
    schedule = ScheduleFactory.create(cron=None, every=timedelta(seconds=1), catch_up="all")
    first, second = start(), start()
    second.workers(2)
    ticks = ScheduleTick.objects.filter(schedule=schedule).order_by("tick")
    until(lambda: ticks.count() >= 4, seconds=SLOW, what="four ticks")
    first.send(signal.SIGKILL)
    seen = ticks.count()
    until(lambda: ticks.count() >= seen + 4, seconds=SLOW, what="four more ticks")
    Schedule.objects.update(paused_at="2026-01-01T00:00:00Z")
    times = [tick.tick for tick in ticks]
    jobs = {job.pk: job for job in Job.objects.filter(metadata__schedule=schedule.name)}
    assert sorted(jobs) == sorted(tick.job_id or 0 for tick in ticks)
    assert all(later - earlier == timedelta(seconds=1) for earlier, later in pairwise(times))
    late = sorted(jobs[tick.job_id or 0].enqueued_at - tick.tick for tick in ticks)
    print("lateness:", [round(each.total_seconds(), 3) for each in late])
    assert late[len(late) // 2] < timedelta(seconds=0.5)


@pytest.mark.django_db(transaction=True)
def test_a_burst_fires_nothing() -> None:
    """A script or a test that runs what is due does not begin the work of the night."""
    schedule = overdue()
    call_command("runqueueworker", burst=True, skip_checks=True)
    assert not jobs_of(schedule)
    assert not outcomes(schedule)


@pytest.mark.django_db(transaction=True)
def test_a_burst_with_schedules_runs_what_is_due_when_it_starts() -> None:
    """It ends, although the schedule is due again and again."""
    every_second = overdue(cron=None, every=timedelta(seconds=1))
    missed = overdue(minute() - timedelta(minutes=3), catch_up="all")
    call_command("runqueueworker", burst=True, schedules=True, skip_checks=True)
    assert [job.status for job in jobs_of(every_second)] == ["done"]
    assert len(jobs_of(missed)) >= 4
    assert {job.status for job in jobs_of(missed)} == {"done"}
