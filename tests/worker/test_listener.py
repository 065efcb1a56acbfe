"""A worker proves to itself that it hears notifications; a session that is deaf is replaced."""

from __future__ import annotations

from time import monotonic
from typing import Any

import pytest

from django_pgqueue import enqueue
from django_pgqueue.session import Session
from django_pgqueue.worker.producer import chores
from django_pgqueue.worker.producer import producer as pump
from django_pgqueue.worker.producer.chores import Chores
from django_pgqueue.worker.producer.idle import Idle
from django_pgqueue.worker.producer.notifier import Listener
from django_pgqueue.worker.producer.producer import Pump
from tests.app import worker_tasks as tasks
from tests.support.workers import backend_of, fresh, make_pump, until, working

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _proofs_are_frequent_and_polls_are_not(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.PGQUEUE = {"POLL_INTERVAL": 60}
    monkeypatch.setattr(chores, "REGISTER_EVERY", 0.1)
    monkeypatch.setattr(pump, "LONGEST_SLEEP", 0.05)


def sleeps(pump: Pump) -> bool:
    """Whether it would find a job only by its poll, or called."""
    return pump._idle.announced and pump._idle.seconds_left(monotonic()) > 30


def test_a_deaf_session_is_replaced_and_the_worker_is_called_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    before_work = Chores.before_work
    deafen: list[bool] = []

    def before(self: Chores, session: Session, now: float) -> None:
        if deafen:  # on the pump's own thread, between two statements
            deafen.clear()
            session.connection.execute("UNLISTEN *")
        before_work(self, session, now)

    monkeypatch.setattr(Chores, "before_work", before)
    with working() as worker:
        deaf = until(lambda: backend_of(worker.pump) if sleeps(worker.pump) else None)
        deafen.append(True)
        until(lambda: backend_of(worker.pump) not in (None, deaf), what="a new connection")
        until(lambda: sleeps(worker.pump))
        job = enqueue(tasks.noop)
        until(lambda: fresh(job).status == "done")
    assert caplog.text.count("the connection is lost: the session is deaf") == 1


def test_a_session_that_hears_is_kept(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """And its proofs cost neither a round trip of their own nor a commit that waits for the disk."""
    monkeypatch.setattr(chores, "REGISTER_EVERY", 0.02)
    run = Session.run
    proofs: list[tuple[int, bool]] = []

    def watched(self: Session, *statements: Any, durable: bool = False) -> Any:
        if any("pg_notify" in query for query, _ in statements):
            proofs.append((len(statements), durable))
        return run(self, *statements, durable=durable)

    monkeypatch.setattr(Session, "run", watched)
    with working() as worker:
        backend = until(lambda: backend_of(worker.pump))
        until(lambda: len(proofs) >= 30)
        job = enqueue(tasks.noop)
        until(lambda: fresh(job).status == "done")
        assert backend_of(worker.pump) == backend
    assert set(proofs) == {(2, False)}
    assert "the connection is lost" not in caplog.text


def test_the_proof_of_one_worker_is_nobodys_call(monkeypatch: pytest.MonkeyPatch) -> None:
    heard, look_now = Listener.heard, Idle.look_now
    proofs: list[tuple[Listener, str]] = []
    called: list[Idle] = []

    def hear(self: Listener, payload: str) -> None:
        proofs.append((self, payload))
        heard(self, payload)

    def look(self: Idle) -> None:
        called.append(self)
        look_now(self)

    monkeypatch.setattr(Listener, "heard", hear)
    monkeypatch.setattr(Idle, "look_now", look)
    with working() as one, working() as other:
        until(lambda: sleeps(one.pump) and sleeps(other.pump))
        proofs.clear()

        def crossed() -> bool:
            """Whether each has heard five proofs of the other."""
            return all(
                len([1 for by, text in proofs if by is ear._listener and f" {mouth._worker} " in text]) >= 5
                for ear, mouth in ((one.pump, other.pump), (other.pump, one.pump))
            )

        until(crossed)
        assert sleeps(one.pump)
        assert sleeps(other.pump)
    assert called == []


def test_behind_a_pooler_there_is_nothing_to_prove() -> None:
    worker = make_pump()
    worker._connect()
    session = worker._live_session()
    session.pooled = True
    listener = Listener(worker=1)
    listener.connected(session)
    assert listener.prove(1.0) == listener.prove(2.0) == []
    worker._end()
    worker._waker.close()
