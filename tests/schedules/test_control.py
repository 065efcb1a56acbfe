"""Pause, resume, run now, and the words for a schedule and its state."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.utils import timezone

from django_pgqueue.explanation import schedules as words
from django_pgqueue.models import Job, Schedule, ScheduleRun
from tests.support.coroutines import run
from tests.support.factories import ScheduleFactory
from tests.support.schedules import ago, fire, jobs_of, outcomes, overdue
from tests.support.sessions import Connection
from tests.support.workers import fresh, run_due

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.promise("schedule-pause")
def test_a_pause_is_not_caught_up(one: Connection) -> None:
    schedule = overdue(ago(hours=1), catch_up="all")
    assert schedule.pause(reason="audit", author="kim") is True
    assert schedule.pause(reason="again") is False
    assert fire(one) == 0
    row = Schedule.objects.get()
    assert (row.pause_author, row.pause_reason) == ("kim", "audit")
    assert not row.is_active
    assert schedule.resume() is True
    assert schedule.resume() is False
    row = Schedule.objects.get()
    assert (row.paused_at, row.pause_author, row.pause_reason, row.next_run_at) == (None, "", "", None)
    fire(one)
    assert not jobs_of(schedule)
    row.refresh_from_db()
    assert row.next_run_at is not None
    assert timedelta(0) < row.next_run_at - datetime.now(UTC) <= timedelta(minutes=1)


def test_a_change_during_a_pause_fires_nothing(one: Connection) -> None:
    schedule = overdue(ago(hours=1))
    schedule.pause()
    Schedule.objects.update(cron="*/2 * * * *")
    assert fire(one) == 0
    assert Schedule.objects.get().next_run_at is None


def test_run_now(one: Connection) -> None:
    schedule = overdue(
        ago(hours=-1), task_path="tests.app.tasks.mail", args=[1], jitter=timedelta(seconds=50)
    )
    job = schedule.enqueue()
    assert isinstance(job, Job)
    assert (job.queue_name, job.max_attempts, job.args) == ("mail", 3, [1])
    assert (job.metadata["schedule"], job.metadata["by_hand"]) == (schedule.name, True)
    assert job.run_after - job.enqueued_at < timedelta(milliseconds=1)  # no jitter
    after = Schedule.objects.get()
    assert (after.next_run_at, after.last_run_at) == (schedule.next_run_at, None)
    assert outcomes(schedule) == ["manual"]
    run_due()
    assert fresh(job).status == "done"
    schedule.pause()
    assert schedule.enqueue().pk > job.pk


def test_a_run_by_hand_is_never_at_the_time_of_a_run(one: Connection) -> None:
    for _ in range(3):
        ScheduleFactory.create().enqueue()
    assert all(run.run_at.microsecond for run in ScheduleRun.objects.all())


@pytest.mark.parametrize("call", [Schedule.pause, Schedule.resume, Schedule.enqueue])
def test_one_that_was_deleted(call: Any) -> None:
    schedule = ScheduleFactory.create()
    Schedule.objects.all().delete()
    with pytest.raises(Schedule.DoesNotExist):
        call(schedule)


def test_async_twins() -> None:
    run(_call_twins())


async def _call_twins() -> None:
    schedule = await sync_to_async(ScheduleFactory.create)()
    assert await schedule.apause(reason="audit", author="kim") is True
    assert (schedule.pause_author, schedule.is_active) == ("kim", False)
    assert await schedule.aresume() is True
    assert schedule.is_active
    assert (await schedule.aenqueue()).metadata["schedule"] == schedule.name


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_another_database() -> None:
    there = Schedule.objects.using("other").create(
        name="there", task_path="tests.app.tasks.noop", cron="* * * * *"
    )
    assert there.pause()
    assert there.resume()
    assert there.enqueue()._state.db == "other"


# -- in words


def test_a_call_is_python() -> None:
    schedule = Schedule(task_path="shop.tasks.report", args=[1, "a"], kwargs={"full": True, "to": None})
    assert words.call(schedule) == "shop.tasks.report(1, 'a', full=True, to=None)"
    assert words.call(Schedule(task_path="shop.tasks.report", args={}, kwargs=[])) == "shop.tasks.report()"


def test_the_states_and_the_reasons() -> None:
    now = timezone.now()
    paused = Schedule(paused_at=now, pause_author="anna", pause_reason="the bank is closed")
    gone = Schedule(paused_at=now, retired_at=now, source="settings", declared_by="shop.settings")
    assert (words.state(Schedule())[0], words.state_note(Schedule())) == ("active", "")
    assert (words.state(paused)[0], words.state_note(paused)) == ("paused", "by anna: the bank is closed")
    assert words.state_note(Schedule(paused_at=now)) == ""
    assert words.state_note(Schedule(paused_at=now, pause_reason="why not")) == "why not"
    assert (words.state(gone)[0], words.state_note(gone)) == (
        "retired",
        "The settings no longer declare it.",
    )
    assert words.origin(gone) == "settings (shop.settings)"
    assert words.origin(Schedule()) == "admin"


def test_of_cron_and_interval_only_the_one_that_is_there_counts_as_overridden() -> None:
    both = {"cron": "0 3 * * *", "every": None, "priority": None}
    assert words.changes(Schedule()) == []
    assert words.changes(Schedule(cron="0 4 * * *", overridden=["cron", "every"], declared=both)) == ["cron"]
    every = Schedule(every=timedelta(hours=1), overridden=["cron", "every"], declared=both)
    assert words.changes(every) == ["cron", "every"]
