"""When a process that has lost its database tries to connect again, and what it logs meanwhile."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from time import monotonic
from typing import Any
from unittest.mock import Mock

import psycopg
import pytest
from django.db import connection, connections

from django_pgqueue.postgres.session import connect
from django_pgqueue.worker import sessions
from django_pgqueue.worker.options import WorkerOptions
from django_pgqueue.worker.sessions import Outage
from django_pgqueue.worker.supervisor import heartbeat as heartbeat_module
from django_pgqueue.worker.supervisor.heartbeat import PATIENCE, Heartbeat, wait_for_primary

REFUSED = psycopg.OperationalError("connection refused\n")


@pytest.mark.promise("reconnects")
def test_the_pauses_grow_up_to_the_longest_and_have_jitter() -> None:
    """After its end, the next outage begins with the shortest one."""
    longest = [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    outages = [Outage() for _ in range(200)]
    for most in longest:
        pauses = [down.pause() for down in outages]
        assert most / 2 <= min(pauses) < 0.6 * most
        assert 0.9 * most < max(pauses) <= most
    outages[0].over()
    assert outages[0].pause() <= longest[0]


def test_the_log_says_a_thing_once_and_again_after_a_minute(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    now = 1000.0
    monkeypatch.setattr(sessions, "monotonic", lambda: now)
    down, text = Outage(), "no connection yet"
    for passes in (0, 0, 59):
        now += passes
        down.log(text, REFUSED)
        down.pause()
    assert caplog.messages == [f"{text}: connection refused"]
    now += 1
    down.log(text, REFUSED)
    down.log(text, psycopg.OperationalError())
    down.over()
    down.over()
    down.log(text, psycopg.OperationalError())
    again = [f"{text}: connection refused", f"{text}: OperationalError", "connected again"]
    assert caplog.messages[1:] == [*again, f"{text}: OperationalError"]


#: A server that answers each connection with an error. A process, because a ping holds the GIL.
REFUSES = r"""
import socket, struct, sys
fields = "SFATAL\0C{}\0M{}\0\0".format(*sys.argv[1:]).encode()
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
while True:
    client, _ = listener.accept()
    with client:
        while len(client.recv(4096)) == 8:  # it asks for encryption
            client.send(b"N")
        client.send(b"E" + struct.pack(">i", 4 + len(fields)) + fields)
"""


@contextmanager
def refusing(code: str, text: str) -> Iterator[str]:
    """Yield the port of a server that refuses each connection."""
    command = [sys.executable, "-c", REFUSES, code, text]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip()
        finally:
            server.kill()


@pytest.mark.parametrize(
    ("code", "text", "waits"),
    [
        ("57P03", "Das Datenbanksystem startet", True),
        ("28P01", "la connexion a été refusée: connection refused", False),
        ("3D000", "Datenbank »starting up« existiert nicht", False),
        ("", "port 1 failed", True),  # nothing listens
    ],
)
def test_a_supervisor_waits_a_minute_for_a_server_that_starts_whatever_its_language(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, code: str, text: str, waits: bool
) -> None:
    now = 1000.0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr(heartbeat_module, "monotonic", lambda: now)
    with refusing(code, text) if code else nullcontext("1") as port:
        monkeypatch.setitem(connections["default"].settings_dict, "HOST", "127.0.0.1")
        monkeypatch.setitem(connections["default"].settings_dict, "PORT", port)
        with pytest.raises(psycopg.OperationalError, match=text):
            wait_for_primary("default", Outage(), sleep, lambda: False)
    assert (now >= 1000.0 + PATIENCE) == waits
    assert any(message.startswith("no connection yet") for message in caplog.messages) == waits


def test_a_server_that_becomes_ready_after_it_has_refused_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    session = object()
    answers = Mock(side_effect=[REFUSED, session])
    monkeypatch.setattr(heartbeat_module, "connect", answers)
    assert wait_for_primary("default", Outage(), lambda seconds: None, lambda: False) is session


@pytest.fixture
def heartbeat(transactional_db: None) -> Any:
    """The heartbeat of a supervisor without processes, with a connection."""
    heartbeat = Heartbeat(WorkerOptions())
    heartbeat.session = connect("default")
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
    assert heartbeat.session is not None
    with connection.cursor() as cursor:
        pid = heartbeat.session.connection.info.backend_pid
        cursor.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])
    assert serve() == pytest.approx(1.0)  # the last heartbeat was sent
    assert heartbeat.session is None


def test_a_supervisor_tries_again_at_once_and_beats(heartbeat: Heartbeat, serve: Callable[[], float]) -> None:
    """If all lose their connections at once, the first one back recovers those that send no heartbeats."""
    for _ in range(3):
        cut(heartbeat, serve)
        assert 0 < serve() <= 0.1
        assert heartbeat.session is not None


def test_a_supervisor_tries_at_least_once_each_heartbeat(
    heartbeat: Heartbeat, serve: Callable[[], float], monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse = Mock(side_effect=REFUSED)
    monkeypatch.setattr(heartbeat_module, "connect", refuse)
    cut(heartbeat, serve)
    for number in range(1, 13):
        assert serve() <= 1.0
        assert refuse.call_count == number


def test_upkeep_that_fails_again_and_again_is_not_tried_ten_times_a_second(
    heartbeat: Heartbeat, serve: Callable[[], float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It can connect each time, but only a successful round ends the outage."""

    full = psycopg.errors.DiskFull("no space left on device")
    monkeypatch.setattr(heartbeat._rounds, "run", Mock(side_effect=full))
    assert [serve() for _ in range(7)][-1] >= 0.5


def test_a_supervisor_whose_prepared_statements_are_gone_opens_a_new_session(
    heartbeat: Heartbeat, serve: Callable[[], float], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for _ in range(2):
        serve()
    session = heartbeat.session
    assert session is not None
    session.connection.pgconn.exec_(b"DEALLOCATE ALL")
    for _ in range(2):
        serve()
    assert heartbeat.session not in (None, session)
    assert [(record.levelname, record.exc_info) for record in caplog.records] == [
        ("WARNING", None), ("INFO", None)
    ]  # fmt: skip
    lost, again = caplog.messages
    assert lost.startswith("the connection is lost: a prepared statement cannot be used anymore")
    assert again == "connected again"
