"""Statements that others depend on are sent in one piece. A worker cannot be stopped in the middle."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection

from django_pgqueue import enqueue
from django_pgqueue.maintenance import rounds
from django_pgqueue.maintenance.recovery import EndedProcess, recover
from django_pgqueue.models import Job, Worker
from django_pgqueue.postgres.session import Session, connect
from django_pgqueue.worker.options import WorkerOptions
from django_pgqueue.worker.sessions import Registration
from django_pgqueue.worker.supervisor.child import Child
from django_pgqueue.worker.supervisor.heartbeat import Heartbeat, _states
from tests.app import worker_tasks as tasks
from tests.support.workers import fresh, run_due

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A session that accepts only single statements, because a pipeline sends the end separately."""
    session = connect("default")
    monkeypatch.setattr(session.connection, "pipeline", lambda: pytest.fail("sent in pieces"))
    yield session
    session.close()


def setting(session: Session, name: str) -> str:
    return str(session.value("SELECT current_setting(%s)", (name,)))


def test_registering_beating_and_upkeep(session: Session) -> None:
    registration = Registration(WorkerOptions(), worker=1, supervisor=1)
    registration.register(session)
    for _ in range(2):
        assert registration.renew(session, 0.0, "SELECT 1", "proof") == [(1,)]
    registration.set_draining(session)
    registration.unregister(session)
    rounds.tell_retention(session)
    rounds.Rounds().run(session, 1e9)
    assert recover(session, EndedProcess(1, None, None, "gone", 0.0, 1.0)) == 0
    heartbeat, child = Heartbeat(WorkerOptions()), Child()
    child.worker = 2
    Registration(WorkerOptions(), worker=2, supervisor=1).register(session)
    before = Worker.objects.get(pk=2).heartbeat_at
    heartbeat._beat(session, _states([child]))
    assert Worker.objects.get(pk=2).heartbeat_at > before


@pytest.mark.promise("progress-not-durable")
def test_nothing_waits_for_the_disk_but_what_says_so() -> None:
    session = connect("default")
    try:
        assert setting(session, "synchronous_commit") == "off"
        with connection.cursor() as cursor:
            cursor.execute("SHOW synchronous_commit")
            (configured,) = cursor.fetchone()
        question = ("SELECT current_setting('synchronous_commit')", None)
        assert session.run(question, durable=True) == [[(configured,)]]
        assert setting(session, "synchronous_commit") == "off"
    finally:
        session.close()


def test_a_transaction_of_a_worker_has_an_end_later_than_its_statements() -> None:
    session = connect("default")
    try:
        assert setting(session, "statement_timeout") == "1min"
        if session.connection.info.server_version >= 170_000:
            assert setting(session, "transaction_timeout") == "2min"
    finally:
        session.close()


@pytest.mark.promise("result-on-disk")
def test_outcomes_are_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    reports: list[bool] = []
    run = Session.run

    def watched(self: Session, *statements: Any, durable: bool = False) -> Any:
        if any("pgqueue_finish" in query for query, _ in statements):
            reports.append(durable)
        return run(self, *statements, durable=durable)

    monkeypatch.setattr(Session, "run", watched)
    job: Job = enqueue(tasks.noop)
    run_due()
    assert fresh(job).status == "done"
    assert reports
    assert all(reports)
