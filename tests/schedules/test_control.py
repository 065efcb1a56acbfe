"""Pause, resume, run now; when a supervisor looks; and the words for a schedule and its state."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.utils import timezone

from django_pgqueue.explanation import schedules as words
from django_pgqueue.models import Job, Schedule, ScheduleRun
from django_pgqueue.postgres.session import Session
from django_pgqueue.schedules import fire as fire_module
from django_pgqueue.schedules.fire import NEXT_LOOK, Firing
from django_pgqueue.worker.options import WorkerOptions
from django_pgqueue.worker.supervisor.heartbeat import Heartbeat
from tests.support.factories import ScheduleFactory
from tests.support.jobs import value
from tests.support.schedules import ago, fire, jobs_of, outcomes, overdue
from tests.support.sessions import Connect, Connection
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


def test_async_code() -> None:
    """Its methods are wrapped as all others are: tests/jobs/test_surroundings.py."""
    for name in ("apause", "aresume", "aenqueue"):
        assert getattr(Schedule, name).__name__ == name


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_another_database() -> None:
    there = Schedule.objects.using("other").create(
        name="there", task_path="tests.app.tasks.noop", cron="* * * * *"
    )
    assert there.pause()
    assert there.resume()
    assert there.enqueue()._state.db == "other"


# -- when a supervisor looks, and what tells it to


@pytest.fixture
def firing(monkeypatch: pytest.MonkeyPatch) -> Firing:
    monkeypatch.setattr("random.uniform", lambda low, high: 0.0)
    return Firing()


def seconds_to_next_look(one: Connection) -> float | None:
    row = one.execute(f"SELECT {NEXT_LOOK}", {"broken": []}).fetchone()
    return None if row is None else row[0]


def test_the_next_look_is_when_the_first_run_is_due(one: Connection) -> None:
    assert seconds_to_next_look(one) is None
    ScheduleFactory.create()
    Schedule.objects.update(paused_at=datetime.now(UTC))
    assert seconds_to_next_look(one) is None
    for seconds in (30, 20, 40):
        schedule = ScheduleFactory.create()
        when = datetime.now(UTC) + timedelta(seconds=seconds)
        Schedule.objects.filter(pk=schedule.pk).update(next_run_at=when)
    assert seconds_to_next_look(one) == pytest.approx(20, abs=5)
    ScheduleFactory.create()
    assert (seconds_to_next_look(one) or 0) < 0  # its first run is not computed yet


def test_a_supervisor_looks_when_a_run_is_due_and_again_at_the_next(session: Session, firing: Firing) -> None:
    schedule = overdue(cron=None, every=timedelta(hours=1))
    firing.look_in(None, 1000.0)
    assert firing.next_round == float("inf")
    firing.look_in(5.0, 1000.0)
    firing.look_in(9.0, 1000.0)
    assert firing.next_round == 1005.0
    firing.run(session, 1004.9)
    assert not jobs_of(schedule)
    firing.run(session, 1005.0)
    assert len(jobs_of(schedule)) == 1
    schedule.refresh_from_db()
    assert schedule.next_run_at is not None
    left = (schedule.next_run_at - datetime.now(UTC)).total_seconds()
    assert firing.next_round == pytest.approx(1005.0 + left, abs=5)


def test_a_locked_schedule_is_looked_at_again_soon(
    session: Session, connect: Connect, firing: Firing
) -> None:
    schedule = overdue()
    editor = connect()
    editor.execute("SELECT FROM pgqueue_schedule FOR UPDATE")
    firing.look_in(0.0, 1000.0)
    firing.run(session, 1000.0)
    assert firing.next_round == pytest.approx(1000.0 + fire_module.STUCK_PAUSE, abs=0.2)
    editor.rollback()
    firing.run(session, firing.next_round)
    assert len(jobs_of(schedule)) == 1


def test_a_run_that_becomes_due_during_a_look_is_looked_at_at_once(
    session: Session, firing: Firing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing was due yet, but it is when the round asks for the next run. That is no reason for a pause."""
    schedule = overdue(ago(hours=-1), cron=None, every=timedelta(days=3660))
    ask = session.value

    def value(query: str, parameters: Any = None) -> Any:
        Schedule.objects.filter(last_run_at=None).update(next_run_at=ago(seconds=0.001))
        return ask(query, parameters)

    monkeypatch.setattr(session, "value", value)
    firing.look_in(0.0, 1000.0)
    firing.run(session, 1000.0)
    assert not jobs_of(schedule)
    assert firing.next_round == pytest.approx(1000.0, abs=fire_module.STUCK_PAUSE - 0.01)
    firing.run(session, firing.next_round)
    assert len(jobs_of(schedule)) == 1


# -- who is told


@pytest.fixture
def news(connect: Connect) -> Connection:
    """A session that listens as a supervisor does."""
    connection = connect(autocommit=True)
    channel = value(connection, "SELECT _pgqueue_channel() || '_schedules'")
    connection.execute(f'LISTEN "{channel}"')
    return connection


def heard(news: Connection) -> int:
    """Return how many notifications have arrived. A statement fetches those that are committed."""
    news.execute("SELECT 1")
    return len(list(news.notifies(timeout=0)))


def test_what_moves_the_next_run_is_told_and_nothing_else(one: Connection, news: Connection) -> None:
    schedule = ScheduleFactory.create()
    assert heard(news) == 1
    Schedule.objects.update(cron=None, every=timedelta(hours=1))
    assert heard(news) == 1
    schedule.pause()
    Schedule.objects.update(every=timedelta(hours=2))
    assert heard(news) == 0
    schedule.resume()
    assert heard(news) == 1
    Schedule.objects.update(jitter=timedelta(seconds=1), every=timedelta(hours=2))
    Schedule.objects.get().save()
    schedule.enqueue()
    fire(one)
    assert heard(news) == 0
    one.execute("SET pgqueue.notify = off")  # for a transaction that will be prepared
    one.execute("INSERT INTO pgqueue_schedule (name, task_path, cron) VALUES ('n', 'a.b', '0 3 * * *')")
    assert heard(news) == 0


def test_behind_a_pooler_nobody_listens() -> None:
    session: Any = SimpleNamespace(pooled=True)
    heartbeat = Heartbeat(WorkerOptions())
    heartbeat.session = session
    assert not heartbeat._listen(session)
    assert heartbeat.files == ()


# -- in words


def test_a_call_is_python() -> None:
    schedule = Schedule(task_path="shop.tasks.report", args=[1, "a"], kwargs={"full": True, "to": None})
    assert words.call(schedule) == "shop.tasks.report(1, 'a', full=True, to=None)"
    assert words.call(Schedule(task_path="shop.tasks.report", args={}, kwargs=[])) == "shop.tasks.report()"


def test_notes_that_no_page_of_the_admin_has_on_record() -> None:
    now = timezone.now()
    assert words.state_note(Schedule()) == words.state_note(Schedule(paused_at=now)) == ""
    assert words.state_note(Schedule(paused_at=now, pause_reason="why not")) == "why not"
    gone = Schedule(paused_at=now, retired_at=now, source="settings", declared_by="shop.settings")
    assert (words.state(gone)[0], words.origin(gone)) == ("retired", "settings (shop.settings)")


def test_of_cron_and_interval_only_the_one_that_is_there_counts_as_overridden() -> None:
    both = {"cron": "0 3 * * *", "every": None, "priority": None}
    assert words.changes(Schedule()) == []
    assert words.changes(Schedule(cron="0 4 * * *", overridden=["cron", "every"], declared=both)) == ["cron"]
    every = Schedule(every=timedelta(hours=1), overridden=["cron", "every"], declared=both)
    assert words.changes(every) == ["cron", "every"]
