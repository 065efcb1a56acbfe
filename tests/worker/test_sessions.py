"""The sessions of workers: when a process that has lost its database tries to connect again, what it logs
meanwhile, and the lock that shows that a worker is alive, which its current session holds once.
"""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.db import connections

from django_pgqueue.models import Worker
from django_pgqueue.postgres.session import Session, connect as connect_worker
from django_pgqueue.worker import sessions
from django_pgqueue.worker.options import WorkerOptions
from django_pgqueue.worker.sessions import Outage, Registration
from django_pgqueue.worker.supervisor import heartbeat as heartbeat_module
from django_pgqueue.worker.supervisor.heartbeat import PATIENCE, wait_for_primary
from tests.support.jobs import add, claim, live, sql
from tests.support.sessions import Connect
from tests.support.workers import RunningWorker, make_producer, until

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


@pytest.mark.parametrize(("code", "text", "waits"), [
    ("57P03", "Das Datenbanksystem startet", True),
    ("28P01", "la connexion a été refusée: connection refused", False),
    ("", "port 1 failed", True),  # nothing listens
])  # fmt: skip
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


# -- the lock that shows that a worker is alive


def holders(worker: int) -> int:
    """Return how many sessions hold the lock of a worker."""
    return int(sql(
        "SELECT count(*) FROM pg_locks, _pgqueue_lock_key('worker', %s) AS key"
        " WHERE locktype = 'advisory' AND objsubid = 1 AND classid = (key >> 32 & 4294967295)::oid"
        " AND objid = (key & 4294967295)::oid AND granted", str(worker),
    ))  # fmt: skip


def hold_lock(session: Session, worker: int) -> None:
    session.run(("SELECT pg_advisory_lock(_pgqueue_lock_key('worker', %s))", (str(worker),)))


@pytest.fixture
def old(transactional_db: None) -> Iterator[Session]:
    """The last session of worker 7, which holds its lock."""
    with closing(connect_worker("default")) as session:
        hold_lock(session, 7)
        yield session


def registration(**options: Any) -> Registration:
    return Registration(WorkerOptions(**options), worker=7, supervisor=1)


def registered() -> Worker:
    return Worker.objects.get(pk=7)


def test_the_lock_is_taken_once_however_often_it_registers(session: Session) -> None:
    """Advisory locks are counted: a lock that was taken twice is not free after one release."""
    worker = registration()
    for _ in range(3):
        worker.register(session)
    session.run(("SELECT pg_advisory_unlock(_pgqueue_lock_key('worker', '7'))", None))
    assert not holders(7)


def test_the_last_session_of_a_worker_is_ended_if_the_server_has_not_noticed_that_it_is_lost(
    old: Session, session: Session
) -> None:
    registration().register(session)
    assert (registered().holds_lock, holders(7)) == (True, 1)
    with pytest.raises(psycopg.OperationalError):
        old.rows("SELECT 1")


@pytest.mark.usefixtures("old")
def test_a_session_that_does_not_end_is_not_waited_for_for_long(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "END_WITHIN", 0.05)
    monkeypatch.setattr(sessions, "_END_SQL", "SELECT %s::bigint[]")
    registration().register(session)
    assert not registered().holds_lock


def test_a_worker_whose_last_session_ends_late_gets_its_lock_and_gives_back_what_that_has_claimed(
    monkeypatch: pytest.MonkeyPatch, connect: Connect
) -> None:
    """Its role must not end the session. The new session has looked for claims that are not its own already,
    when it was opened.
    """
    monkeypatch.setattr(Registration, "_end_last_session", lambda self, session: None)
    monkeypatch.setattr(sessions, "REGISTER_EVERY", 0.05)
    producer = make_producer(queues=("other",))
    shown = producer.jobs._started_jobs  # what its supervisor repeats with each heartbeat
    one = connect(autocommit=True)
    with closing(connect_worker("default")) as old:
        hold_lock(old, producer.worker)
        worker = RunningWorker(producer)
        until(lambda: shown.registered)
        assert (Worker.objects.get().holds_lock, bool(shown.holds_lock)) == (False, False)
        (job,) = add(one)
        assert len(claim(one, worker=producer.worker)) == 1
        old.close()
        until(lambda: Worker.objects.get().holds_lock)
        until(lambda: shown.holds_lock)
        until(lambda: live(one) == {job: "pending"})
        worker.stop()


@pytest.mark.usefixtures("old")
def test_a_session_asks_once_that_the_one_before_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each time, it would wait for that."""
    asked: list[Session] = []
    monkeypatch.setattr(Registration, "_end_last_session", lambda self, session: asked.append(session))
    worker = registration()
    for _ in range(2):
        with closing(connect_worker("default")) as new:
            worker.register(new)
            worker.renew(new, 0.0, "SELECT 1", None)
    assert len(asked) == len({id(session) for session in asked}) == 2


def test_the_entry_names_the_queues_that_the_worker_leaves_out_and_its_memory(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = registration(exclude_queues=("never", "slow"))
    worker.register(session)
    assert (registered().queues, registered().exclude_queues) == ([], ["never", "slow"])
    assert (registered().memory or 0) > 2**20
    monkeypatch.setattr(sessions, "_STATM", Path("/does/not/exist"))
    worker.register(session)
    assert registered().memory is None, "not known on this system"
