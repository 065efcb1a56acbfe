"""When a supervisor looks at schedules, and what tells it to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from django_pgqueue.models import Schedule
from django_pgqueue.postgres.session import Session
from django_pgqueue.postgres.session import connect as connect_session
from django_pgqueue.schedules import fire as fire_module
from django_pgqueue.schedules.fire import NEXT_LOOK, Firing
from django_pgqueue.worker.options import WorkerOptions
from django_pgqueue.worker.supervisor.heartbeat import Heartbeat
from tests.support.factories import ScheduleFactory
from tests.support.jobs import value
from tests.support.schedules import ago, fire, jobs_of, overdue
from tests.support.sessions import Connect, Connection

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def firing(monkeypatch: pytest.MonkeyPatch) -> Firing:
    monkeypatch.setattr("random.uniform", lambda low, high: 0.0)
    return Firing()


@pytest.fixture
def session(transactional_db: None) -> Iterator[Session]:
    with closing(connect_session("default")) as session:
        yield session


def seconds_to_next_look(one: Connection) -> float | None:
    row = one.execute(f"SELECT {NEXT_LOOK}", {"broken": []}).fetchone()
    return None if row is None else row[0]


def test_nothing_to_look_at_without_schedules(one: Connection) -> None:
    assert seconds_to_next_look(one) is None
    ScheduleFactory.create()
    Schedule.objects.update(paused_at=datetime.now(UTC))
    assert seconds_to_next_look(one) is None


def test_the_next_look_is_when_the_first_run_is_due(one: Connection) -> None:
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


def test_what_moves_the_next_run_is_told(one: Connection, news: Connection) -> None:
    schedule = ScheduleFactory.create()
    assert heard(news) == 1
    Schedule.objects.update(cron=None, every=timedelta(hours=1))
    assert heard(news) == 1
    schedule.pause()
    Schedule.objects.update(every=timedelta(hours=2))
    assert heard(news) == 0
    schedule.resume()
    assert heard(news) == 1


def test_what_does_not_move_it_is_not_told(one: Connection, news: Connection) -> None:
    schedule = overdue()
    heard(news)
    Schedule.objects.update(jitter=timedelta(seconds=1), cron=schedule.cron)
    schedule.save()
    schedule.enqueue()
    fire(one)
    assert heard(news) == 0


def test_a_transaction_that_will_be_prepared_can_turn_it_off(one: Connection, news: Connection) -> None:
    one.execute("SET pgqueue.notify = off")
    one.execute("INSERT INTO pgqueue_schedule (name, task_path, cron) VALUES ('n', 'a.b', '0 3 * * *')")
    assert heard(news) == 0


def test_behind_a_pooler_nobody_listens() -> None:
    session: Any = SimpleNamespace(pooled=True)
    heartbeat = Heartbeat(WorkerOptions())
    heartbeat.session = session
    assert not heartbeat._listen(session)
    assert heartbeat.files == ()
