"""``USE_TZ = False``: naive times are accepted as Django does, and mean TIME_ZONE."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from django_pgqueue import Snooze, current_job, edit, enqueue, pause, task
from django_pgqueue.exceptions import moment
from django_pgqueue.models import Pause
from django_pgqueue.testing import assert_enqueued, dummy_jobs, run_jobs
from tests.app.tasks import noop
from tests.support.workers import fresh

pytestmark = pytest.mark.django_db

HOUR = timedelta(hours=1)
SEEN: list[Any] = []


@task
def naps() -> None:
    SEEN.append(current_job().enqueued_at <= timezone.now())
    raise Snooze(until=timezone.now() + HOUR)


@pytest.fixture(autouse=True)
def _without_zones(settings: Any) -> None:
    settings.USE_TZ = False
    settings.TIME_ZONE = "America/New_York"


def in_an_hour(found: datetime) -> bool:
    return abs(found - timezone.now() - HOUR) < timedelta(minutes=1)


def test_a_job_runs_is_moved_and_snoozes_until_a_naive_time() -> None:
    later, moved, snoozed = enqueue(noop.using(run_after=timezone.now() + HOUR)), enqueue(noop), enqueue(naps)
    assert_enqueued(noop, run_after=timezone.now() + HOUR)
    assert edit(moved, run_after=timezone.now() + HOUR) == 1
    run_jobs()
    assert all(in_an_hour(fresh(job).run_after) for job in (later, moved, snoozed))
    assert SEEN.pop(), "a running job has naive times"


def test_a_pause_ends_at_a_naive_time() -> None:
    found = pause(queue="mail", until=timezone.now() + HOUR)
    assert found.until is not None
    assert in_an_hour(found.until)
    with pytest.raises(ValueError, match="must be in the future"):
        pause(queue="mail", until=timezone.now() - HOUR)
    assert Pause.objects.count() == 1


def test_dummy_jobs_have_naive_times() -> None:
    with dummy_jobs() as jobs:
        enqueue(noop.using(run_after=timezone.now() + HOUR))
        assert in_an_hour(jobs[0].run_after)
        assert jobs[0].enqueued_at <= timezone.now()
        assert_enqueued(noop, run_after=timezone.now() + HOUR, among=jobs)


@pytest.mark.parametrize("time", ["2026-07-01 12:00", "2026-11-01 01:30", "2026-03-08 02:30"])
def test_an_hour_that_comes_twice_or_never_is_that_of_the_server(time: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT extract(epoch FROM %s::timestamptz)", [time])
        (seconds,) = cursor.fetchone()
    assert moment("run_after", datetime.fromisoformat(time)).timestamp() == seconds


def test_a_naive_time_is_refused_with_zones(settings: Any) -> None:
    settings.USE_TZ = True
    with pytest.raises(TypeError, match="aware datetime"):
        Snooze(until=datetime(2030, 1, 1))  # noqa: DTZ001
    with pytest.raises(TypeError, match="aware datetime"):
        pause(queue="mail", until=datetime(2030, 1, 1))  # noqa: DTZ001
