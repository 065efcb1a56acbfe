"""Schedules and real workers: two supervisors, of which one is killed, fire each tick once and in time."""

from __future__ import annotations

import signal
from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise

from django_pgqueue.models import Job, Schedule, ScheduleTick
from tests.support.factories import ScheduleFactory
from tests.support.workers import until

from .conftest import SLOW, Command


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
