"""What a worker sends: how little while it is idle, in one piece what belongs together, and how durably."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest

from django_pgqueue import enqueue
from django_pgqueue.maintenance import rounds
from django_pgqueue.maintenance.recovery import EndedProcess, recover
from django_pgqueue.models import Worker
from django_pgqueue.postgres import session as session_module
from django_pgqueue.postgres.session import Session
from django_pgqueue.worker.options import WorkerOptions
from django_pgqueue.worker.sessions import Registration
from django_pgqueue.worker.started_jobs import StartedJobs
from django_pgqueue.worker.supervisor.child import Child
from django_pgqueue.worker.supervisor.heartbeat import Heartbeat, _states
from tests.app import worker_tasks as tasks
from tests.support.jobs import sql
from tests.support.workers import fresh, make_producer, run_due, until

pytestmark = pytest.mark.django_db(transaction=True)

SETTLED = 60.0  # seconds after which it looks as rarely as it ever does
WATCHED = 600.0


class Clock:
    """Replaces the monotonic clock in all modules of the worker: the real one may be far ahead."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        modules = [sys.modules[name] for name in sys.modules if name.startswith("django_pgqueue.worker.")]
        for module in (session_module, *(each for each in modules if hasattr(each, "monotonic"))):
            monkeypatch.setattr(module, "monotonic", lambda: self.now)

    def sleep(self, seconds: float, *_: Any) -> None:
        self.now += seconds


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The statements that all psycopg connections send. Those of Django's connections use cursors."""
    statements: list[str] = []
    execute = psycopg.Connection.execute

    def watched(self: Any, query: Any, *args: Any, **kwargs: Any) -> Any:
        statements.append(query)
        return execute(self, query, *args, **kwargs)

    monkeypatch.setattr(psycopg.Connection, "execute", watched)
    # The middle of all random pauses.
    monkeypatch.setattr("random.uniform", lambda low, high: (low + high) / 2)
    return statements


def per_second(clock: Clock, turn: Callable[[], object], sent: list[str]) -> float:
    """Return how many statements are sent in a second."""
    settled = clock.now + SETTLED
    while clock.now < settled:
        turn()
    began = clock.now
    sent.clear()
    while clock.now < began + WATCHED:
        turn()
    return len(sent) / (clock.now - began)


def supervisor(monkeypatch: pytest.MonkeyPatch, sent: list[str]) -> float:
    clock = Clock(monkeypatch)
    heartbeat = Heartbeat(WorkerOptions())
    assert heartbeat.start(lambda: None, clock.sleep, lambda: False)
    jobs = StartedJobs.private(1)
    jobs.registered = jobs.holds_lock = True
    child: Any = SimpleNamespace(lives=True, worker=1, jobs=jobs)

    def turn() -> None:
        clock.sleep(heartbeat.seconds_left(clock.now))
        heartbeat.serve([child])

    try:
        return per_second(clock, turn, sent)
    finally:
        heartbeat.close()


def process(monkeypatch: pytest.MonkeyPatch, sent: list[str]) -> float:
    clock = Clock(monkeypatch)
    producer = make_producer()
    producer._connection.open()
    monkeypatch.setattr(producer._waker, "sleep", clock.sleep)

    def heard() -> bool:
        producer._inbox.hear(producer._connection.live)
        return producer._inbox.hears

    def turn() -> None:
        producer._turn()
        # The time of the clock passes sooner than a notification arrives.
        until(heard)

    try:
        return per_second(clock, turn, sent)
    finally:
        producer._shut_down()
        producer._waker.close()


def test_an_idle_worker_sends_at_most_one_statement_a_second(
    monkeypatch: pytest.MonkeyPatch, sent: list[str]
) -> None:
    rates = supervisor(monkeypatch, sent), process(monkeypatch, sent)
    assert sum(rates) <= 1.0, rates


def test_registering_beating_and_maintenance_are_sent_in_one_piece(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker cannot be stopped in the middle, while a pipeline sends its end separately."""
    monkeypatch.setattr(session.connection, "pipeline", lambda: pytest.fail("sent in pieces"))
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


def setting(session: Session, name: str) -> str:
    return str(session.value("SELECT current_setting(%s)", (name,)))


@pytest.mark.promise("progress-not-durable")
def test_nothing_waits_for_the_disk_but_what_says_so(session: Session) -> None:
    assert setting(session, "synchronous_commit") == "off"
    question = ("SELECT current_setting('synchronous_commit')", None)
    assert session.run(question, durable=True) == [[(sql("SHOW synchronous_commit"),)]]
    assert setting(session, "synchronous_commit") == "off"


@pytest.mark.promise("result-on-disk")
def test_outcomes_are_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    reports: list[bool] = []
    run = Session.run

    def watched(self: Session, *statements: Any, durable: bool = False) -> Any:
        if any("pgqueue_finish" in query for query, _ in statements):
            reports.append(durable)
        return run(self, *statements, durable=durable)

    monkeypatch.setattr(Session, "run", watched)
    job = enqueue(tasks.noop)
    run_due()
    assert fresh(job).status == "done"
    assert reports
    assert all(reports)


def test_a_transaction_of_a_worker_has_an_end_later_than_its_statements(session: Session) -> None:
    assert setting(session, "statement_timeout") == "1min"
    if session.connection.info.server_version >= 170_000:
        assert setting(session, "transaction_timeout") == "2min"


def test_a_changed_retention_is_told_to_the_ring_and_logged_once(
    session: Session, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "django_pgqueue")
    settings.PGQUEUE = {"RETENTION": 3600 * 24 * 3}
    try:
        for _ in range(2):
            heartbeat = Heartbeat(WorkerOptions())
            assert heartbeat.start(lambda: None, lambda seconds: None, lambda: False)
            heartbeat.close()
        assert session.value("SELECT retention = '3 days' FROM pgqueue_ring")
    finally:
        settings.PGQUEUE = {}
        rounds.tell_retention(session)
    assert [message for message in caplog.messages if "to 3 days" in message] == [caplog.messages[0]]
    assert "retention changed from 7 days, 0:00:00 to 3 days, 0:00:00" in caplog.messages[0]
