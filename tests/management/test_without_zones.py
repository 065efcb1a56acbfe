"""The commands with ``USE_TZ = False``: all times are naive, in the time zone of the settings."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from django_pgqueue.models import Pause
from tests.support.factories import ERROR, JobFactory, JobStatFactory, ScheduleFactory, WorkerFactory

from .test_subcommands import run

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _without_zones(settings: Any) -> None:
    settings.USE_TZ = False


def test_jobs() -> None:
    failed = JobFactory.create(failed=True, errors=[ERROR], finished_at=timezone.now())
    waits = JobFactory.create(run_after=timezone.now() + timedelta(hours=1))
    for job in (failed, waits):
        assert f"{job.pk}" in run("jobs")
        assert f"Job {job.pk}" in run("jobs", str(job.pk))


def test_figures_and_the_live_view() -> None:
    WorkerFactory.create()
    JobStatFactory.create(minute=timezone.now().replace(second=0, microsecond=0), done=5)
    for command in ("stats", "workers", "health", "failures", "pauses", "tasks", "top"):
        assert run(command), command


def test_a_pause() -> None:
    said = run("pause", "--queue", "mail", "--until", f"{timezone.now() + timedelta(hours=1):%Y-%m-%dT%H:%M}")
    assert f"{Pause.objects.get().until:%H:%M:%S}" in said


def test_schedules() -> None:
    due = ScheduleFactory.create(name="due", next_run_at=timezone.now() + timedelta(minutes=5))
    ScheduleFactory.create(name="new", next_run_at=None)
    said = run("schedules")
    assert "due" in said
    assert "new" in said
    assert f"{due.next_run_at:%Y-%m-%d %H:%M:%S}" in run("schedules", "show", "due")
