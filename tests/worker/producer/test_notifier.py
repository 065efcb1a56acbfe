"""A worker checks that it receives notifications. A session that receives none is replaced."""

from __future__ import annotations

from time import monotonic
from typing import Any

import pytest

from django_pgqueue import enqueue
from django_pgqueue.postgres.session import Session
from django_pgqueue.worker import sessions
from django_pgqueue.worker.producer import producer as producer_module
from django_pgqueue.worker.producer.idle import Idle
from django_pgqueue.worker.producer.inbox import PROOF
from django_pgqueue.worker.producer.producer import Producer
from tests.app import worker_tasks as tasks
from tests.support.workers import backend_of, fresh, make_producer, until, working

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _proofs_are_frequent_and_polls_are_not(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.PGQUEUE = {"POLL_INTERVAL": 60}
    monkeypatch.setattr(sessions, "REGISTER_EVERY", 0.1)
    monkeypatch.setattr(producer_module, "LONGEST_SLEEP", 0.05)


def sleeps(producer: Producer) -> bool:
    """Return whether the worker sleeps until its poll or a notification."""
    return producer._idle.announced and producer._idle.seconds_left(monotonic()) > 30


def test_a_deaf_session_is_replaced_and_the_worker_is_called_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    register = Producer._keep_registered
    deafen: list[bool] = []

    def before(self: Producer, session: Session, now: float) -> None:
        if deafen:  # on the producer's own thread, between two statements
            deafen.clear()
            session.connection.execute("UNLISTEN *")
        register(self, session, now)

    monkeypatch.setattr(Producer, "_keep_registered", before)
    with working() as worker:
        deaf = until(lambda: backend_of(worker.producer) if sleeps(worker.producer) else None)
        deafen.append(True)
        until(lambda: backend_of(worker.producer) not in (None, deaf), what="a new connection")
        until(lambda: sleeps(worker.producer))
        job = enqueue(tasks.noop)
        until(lambda: fresh(job).status == "done")
    assert caplog.text.count("the connection is lost: the session does not receive notifications") == 1


def test_a_session_that_hears_is_kept(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its notifications to itself need neither a separate statement nor a commit that waits for the disk."""
    monkeypatch.setattr(sessions, "REGISTER_EVERY", 0.02)
    run = Session.run
    proofs: list[tuple[list[bool], bool]] = []

    def watched(self: Session, *statements: Any, durable: bool = False) -> Any:
        if any("pg_notify" in query for query, _ in statements):
            proofs.append((["INSERT INTO pgqueue_worker" in query for query, _ in statements], durable))
        return run(self, *statements, durable=durable)

    monkeypatch.setattr(Session, "run", watched)
    with working() as worker:
        backend = until(lambda: backend_of(worker.producer))
        until(lambda: len(proofs) >= 30)
        job = enqueue(tasks.noop)
        until(lambda: fresh(job).status == "done")
        assert backend_of(worker.producer) == backend
    assert all(proof == ([True], False) for proof in proofs)
    assert "the connection is lost" not in caplog.text


def test_the_proof_of_one_worker_is_nobodys_call(monkeypatch: pytest.MonkeyPatch) -> None:
    notifications, look_now = Session.notifications, Idle.look_now
    proofs: list[tuple[Session, str]] = []
    called: list[Idle] = []

    def hear(self: Session) -> Any:
        found = notifications(self)
        proofs.extend((self, each.payload) for each in found if each.payload.startswith(PROOF))
        return found

    def look(self: Idle) -> None:
        called.append(self)
        look_now(self)

    monkeypatch.setattr(Session, "notifications", hear)
    monkeypatch.setattr(Idle, "look_now", look)
    with working() as one, working() as other:
        until(lambda: sleeps(one.producer) and sleeps(other.producer))
        proofs.clear()

        def heard(ear: Producer, mouth: Producer) -> int:
            session = ear._connection.session
            return len([1 for by, text in proofs if by is session and f" {mouth.worker} " in text])

        until(lambda: min(heard(one.producer, other.producer), heard(other.producer, one.producer)) >= 5)
        assert sleeps(one.producer)
        assert sleeps(other.producer)
    assert called == []


def test_behind_a_pooler_there_is_nothing_to_prove() -> None:
    worker = make_producer()
    worker._connection.open()
    session = worker._connection.live
    session.pooled = True
    inbox = worker._inbox
    inbox.connected(session)
    assert not inbox.hears
    assert inbox.prove(1.0) is inbox.prove(2.0) is None
    worker._end()
    worker._waker.close()
