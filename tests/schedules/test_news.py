"""Who is told when a schedule changes, and who is not."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from django_pgqueue.models import Schedule
from django_pgqueue.worker.options import WorkerOptions
from django_pgqueue.worker.supervisor.heartbeat import Heartbeat
from tests.support.factories import ScheduleFactory
from tests.support.jobs import value
from tests.support.schedules import fire, overdue
from tests.support.sessions import Connect, Connection

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def one(connect: Connect) -> Connection:
    return connect(autocommit=True)


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
