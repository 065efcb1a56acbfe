"""Schedules and real workers: two supervisors, one of which is killed, fire each run once and in time."""

from __future__ import annotations

import signal
from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise

import pytest
from django.core.management import call_command

from django_pgqueue.models import Job, Schedule, ScheduleRun
from tests.support.commands import SLOW, Command
from tests.support.factories import ScheduleFactory
from tests.support.schedules import jobs_of, minute, outcomes, overdue
from tests.support.workers import until


@pytest.mark.promise("schedule-in-time")
def test_runs_are_fired_once_and_in_time(start: Callable[..., Command]) -> None:
    schedule = ScheduleFactory.create(cron=None, every=timedelta(seconds=1), catch_up="all")
    first, second = start(), start()
    second.workers(2)
    runs = ScheduleRun.objects.filter(schedule=schedule).order_by("run_at")
    until(lambda: runs.count() >= 4, seconds=SLOW, what="four runs")
    first.send(signal.SIGKILL)
    seen = runs.count()
    until(lambda: runs.count() >= seen + 4, seconds=SLOW, what="four more runs")
    Schedule.objects.update(paused_at="2026-01-01T00:00:00Z")
    times = [run.run_at for run in runs]
    jobs = {job.pk: job for job in Job.objects.filter(metadata__schedule=schedule.name)}
    assert sorted(jobs) == sorted(run.job_id or 0 for run in runs)
    assert all(later - earlier == timedelta(seconds=1) for earlier, later in pairwise(times))
    late = sorted(jobs[run.job_id or 0].enqueued_at - run.run_at for run in runs)
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
