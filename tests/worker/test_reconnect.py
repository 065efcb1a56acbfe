"""When a process that has lost its database tries to connect again, and what it logs meanwhile."""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic
from typing import Any

import psycopg
import pytest
from django.db import connection

from django_pgqueue.postgres.session import connect
from django_pgqueue.worker import reconnect
from django_pgqueue.worker.reconnect import PATIENCE, Outage, wait_for_primary
from django_pgqueue.worker.supervisor import heartbeat as heartbeat_module
from django_pgqueue.worker.supervisor.heartbeat import Heartbeat

REFUSED = psycopg.OperationalError("connection refused\n")


def test_the_pauses_grow_up_to_the_longest_and_have_jitter() -> None:
    longest = [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    tries = [[down.pause() for _ in longest] for down in [Outage() for _ in range(200)]]
    for number, most in enumerate(longest):
        pauses = [pauses[number] for pauses in tries]
        assert most / 2 <= min(pauses) < 0.6 * most
        assert 0.9 * most < max(pauses) <= most


def test_after_its_end_the_next_one_begins_with_the_shortest_pause() -> None:
    down = Outage()
    for _ in range(10):
        down.pause()
    down.over()
    assert down.pause() <= 0.1


def test_the_log_says_a_thing_once_and_again_after_a_minute(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    now = 1000.0
    monkeypatch.setattr(reconnect, "monotonic", lambda: now)
    down = Outage()
    for _ in range(3):
        down.tell("no connection yet", REFUSED)
        down.pause()
    now += 59
    down.tell("no connection yet", REFUSED)
    assert caplog.messages == ["no connection yet: connection refused"]
    now += 1
    down.tell("no connection yet", REFUSED)
    down.tell("no connection yet", psycopg.OperationalError())
    down.over()
    down.over()
    down.tell("no connection yet", psycopg.OperationalError())
    assert caplog.messages[1:] == [
        "no connection yet: connection refused",
        "no connection yet: OperationalError",
        "connected again",
        "no connection yet: OperationalError",
    ]


@pytest.mark.parametrize(
    ("message", "waits"),
    [
        ('connection to server at "127.0.0.1", port 1 failed: Connection refused', True),
        ("FATAL:  the database system is starting up", True),
        ("FATAL:  the database system is not yet accepting connections", True),
        ('FATAL:  database "nowhere" does not exist', False),
        ('FATAL:  password authentication failed for user "me"', False),
    ],
)
def test_a_supervisor_waits_a_minute_for_a_server_that_starts(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, message: str, waits: bool
) -> None:
    now = 1000.0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    def refuse(alias: str, *, name: str) -> None:
        raise psycopg.OperationalError(message)

    monkeypatch.setattr(reconnect, "monotonic", lambda: now)
    monkeypatch.setattr(reconnect, "connect", refuse)
    with pytest.raises(psycopg.OperationalError, match=message[:10]):
        wait_for_primary("default", Outage(), sleep, lambda: False)
    assert (now >= 1000.0 + PATIENCE) == waits
    assert (f"no connection yet: {message}" in caplog.messages) == waits


@pytest.fixture
def heartbeat(transactional_db: None) -> Any:
    """The heartbeat of a supervisor without processes, with a connection."""
    heartbeat = Heartbeat("default")
    heartbeat._session = connect("default")
    yield heartbeat
    heartbeat.end()


@pytest.fixture
def serve(heartbeat: Heartbeat, monkeypatch: pytest.MonkeyPatch) -> Callable[[], float]:
    """Return a function that runs the heartbeat at its next time, and returns the pause before it."""
    now = monotonic()
    monkeypatch.setattr(heartbeat_module, "monotonic", lambda: now)

    def serve() -> float:
        nonlocal now
        pause = heartbeat.seconds_left(now)
        now += pause
        heartbeat.serve([])
        return pause

    serve()
    return serve


def cut(heartbeat: Heartbeat, serve: Callable[[], float]) -> None:
    """End the session, and let the heartbeat notice it."""
    assert heartbeat._session is not None
    with connection.cursor() as cursor:
        pid = heartbeat._session.connection.info.backend_pid
        cursor.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])
    assert serve() == pytest.approx(1.0)  # the last heartbeat was sent
    assert heartbeat._session is None


def test_a_supervisor_tries_again_at_once_and_beats(heartbeat: Heartbeat, serve: Callable[[], float]) -> None:
    """If all lose their connections at once, the first one back recovers those that send no heartbeats."""
    for _ in range(3):
        cut(heartbeat, serve)
        assert 0 < serve() <= 0.1
        assert heartbeat._session is not None


def test_a_supervisor_tries_at_least_once_each_heartbeat(
    heartbeat: Heartbeat, serve: Callable[[], float], monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = []

    def refuse(alias: str, *, name: str) -> None:
        tries.append(alias)
        raise REFUSED

    monkeypatch.setattr(heartbeat_module, "connect", refuse)
    cut(heartbeat, serve)
    for number in range(1, 13):
        assert serve() <= 1.0
        assert len(tries) == number


def test_upkeep_that_fails_again_and_again_is_not_tried_ten_times_a_second(
    heartbeat: Heartbeat, serve: Callable[[], float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It can connect each time, but only a successful round ends the outage."""

    def fail(*args: Any) -> None:
        raise psycopg.errors.DiskFull("no space left on device")

    monkeypatch.setattr(heartbeat._rounds, "run", fail)
    assert [serve() for _ in range(7)][-1] >= 0.5


def test_a_supervisor_whose_prepared_statements_are_gone_opens_a_new_session(
    heartbeat: Heartbeat, serve: Callable[[], float], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for _ in range(2):
        serve()
    session = heartbeat._session
    assert session is not None
    session.connection.pgconn.exec_(b"DEALLOCATE ALL")
    for _ in range(2):
        serve()
    assert heartbeat._session not in (None, session)
    assert [(record.levelname, record.exc_info) for record in caplog.records] == [
        ("WARNING", None),
        ("INFO", None),
    ]
    assert caplog.messages[0].startswith(
        "the connection is lost: a prepared statement cannot be used anymore"
    )
    assert caplog.messages[1] == "connected again"
