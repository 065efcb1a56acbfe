"""An idle worker with default settings sends at most one statement a second.

All statements of its sessions are counted, by clocks that belong to the test.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest

from django_pgqueue.postgres import session
from django_pgqueue.worker.options import WorkerOptions
from django_pgqueue.worker.started_jobs import StartedJobs
from django_pgqueue.worker.supervisor.heartbeat import Heartbeat
from tests.support.workers import make_producer, until

pytestmark = pytest.mark.django_db(transaction=True)

SETTLED = 60.0  # seconds after which it looks as rarely as it ever does
WATCHED = 600.0


class Clock:
    """Replaces the monotonic clock in all modules of the worker: the real one may be far ahead."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        modules = [sys.modules[name] for name in sys.modules if name.startswith("django_pgqueue.worker.")]
        for module in (session, *(each for each in modules if hasattr(each, "monotonic"))):
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
        heartbeat.end()


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
        producer._end()
        producer._waker.close()


def test_an_idle_worker_sends_at_most_one_statement_a_second(
    monkeypatch: pytest.MonkeyPatch, sent: list[str]
) -> None:
    rates = supervisor(monkeypatch, sent), process(monkeypatch, sent)
    assert sum(rates) <= 1.0, rates
