"""Pause, resume, run now, and what a row says about values that someone enters."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction

from django_pgqueue.models import Job, Schedule, ScheduleRun
from tests.support.coroutines import run
from tests.support.factories import ScheduleFactory
from tests.support.schedules import ago, fire, jobs_of, outcomes, overdue
from tests.support.sessions import Connect, Connection
from tests.support.workers import fresh, run_due

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def one(connect: Connect) -> Connection:
    return connect(autocommit=True)


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


# -- bad values in rows


@pytest.mark.parametrize(
    ("columns", "field"),
    [
        ({"cron": None}, "__all__"),
        ({"every": timedelta(seconds=5)}, "__all__"),
        ({"cron": "0 0 30 2 *"}, "cron"),
        ({"cron": "x"}, "cron"),
        ({"timezone": "Mars"}, "timezone"),
        ({"cron": None, "every": timedelta(milliseconds=5)}, "every"),
        ({"jitter": timedelta(minutes=2)}, "jitter"),
        ({"jitter": timedelta(seconds=-2)}, "jitter"),
        ({"name": "with space"}, "name"),
        ({"name": "n" * 201}, "name"),
        ({"task_path": "tests.app.tasks.gone"}, "task_path"),
        ({"task_path": "tests.app.tasks.mail"}, "args"),
        ({"args": {"a": 1}}, "args"),
        ({"kwargs": [1]}, "kwargs"),
        ({"queue_name": "a b"}, "queue_name"),
        ({"priority": 101}, "priority"),
        ({"catch_up": "some"}, "catch_up"),
        ({"overlap": "some"}, "overlap"),
        ({"catch_up_limit": 0}, "catch_up_limit"),
    ],
)
def test_full_clean_names_the_field(columns: dict[str, Any], field: str) -> None:
    row = Schedule(**{"name": "n", "task_path": "tests.app.tasks.noop", "cron": "* * * * *", **columns})
    with pytest.raises(ValidationError) as caught:
        row.full_clean()
    assert field in caught.value.message_dict


def test_full_clean_accepts_empty_fields_of_a_form() -> None:
    row = Schedule(
        name="n", task_path="tests.app.tasks.noop", cron="", every=timedelta(hours=1), queue_name="", args=[]
    )
    row.full_clean()
    assert (row.cron, row.queue_name) == (None, None)


@pytest.mark.parametrize(
    "columns",
    [
        {"every": timedelta(seconds=5)},
        {"cron": None},
        {"cron": None, "every": timedelta(0)},
        {"jitter": timedelta(seconds=-1)},
        {"cron": None, "every": timedelta(seconds=5), "jitter": timedelta(seconds=6)},
        {"catch_up": "some"},
        {"overlap": "some"},
        {"source": "some"},
        {"catch_up_limit": 0},
    ],
)
def test_sql_is_refused_the_same(columns: dict[str, Any]) -> None:
    schedule = ScheduleFactory.create()
    with pytest.raises(IntegrityError, match="pgqueue_schedule_"), transaction.atomic():
        Schedule.objects.filter(pk=schedule.pk).update(**columns)


@pytest.mark.parametrize("column", ["next_run_at", "last_run_at", "since"])
def test_a_time_that_nobody_could_compute_with_is_refused(one: Connection, column: str) -> None:
    ScheduleFactory.create()
    with pytest.raises(Exception, match="pgqueue_schedule_times"):
        one.execute(f"UPDATE pgqueue_schedule SET {column} = 'infinity'")
