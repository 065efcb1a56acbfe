"""The thread that notices for all waiters of a process that their jobs have finished."""

from __future__ import annotations

import os
from collections.abc import Iterator
from threading import Event
from typing import Any, cast

import psycopg
import pytest
from django.db import ProgrammingError

from django_pgqueue import cancel, enqueue
from django_pgqueue.models import Job, joins
from django_pgqueue.models.joins import Poller, watch
from tests.app import worker_tasks
from tests.support.databases import alias
from tests.support.poolers import pgbouncer
from tests.support.sessions import Connect
from tests.support.waiting import DEADLINE, until

OTHERS = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
committed = pytest.mark.django_db(transaction=True)


class FakeSession:
    """Answers which jobs are live, and stores what it was asked."""

    def __init__(self, live: set[int]) -> None:
        self.live, self.asked, self.is_closed = live, list[list[int]](), False
        self.errors: list[Exception] = []

    def rows(self, query: str, parameters: tuple[list[int]]) -> list[tuple[int]]:
        self.asked.append(parameters[0])
        if self.errors:
            raise self.errors.pop()
        return [(job,) for job in parameters[0] if job in self.live]

    def close(self) -> None:
        self.is_closed = True


def connected(alias: str = "default") -> bool:
    """Whether the thread for this database has a session."""
    return joins._pollers[alias]._session is not None


def poller_of(session: FakeSession) -> Poller:
    poller: Any = Poller("default")
    poller._open = lambda: session
    return cast("Poller", poller)


def test_a_thousand_waiters_are_one_statement() -> None:
    session = FakeSession(live=set())
    poller = poller_of(session)
    with poller._changed:  # the thread looks when all of them wait
        futures = [poller.watch(job) for job in range(1_000)] + [poller.watch(5)]
    for future in futures:
        future.result(DEADLINE)
    assert session.asked == [list(range(1_000))]


def test_waiters_that_have_started_at_different_times_share_statements() -> None:
    session = FakeSession(live={1, 2})
    poller = poller_of(session)
    first = poller.watch(1)
    until(lambda: len(session.asked) >= 4)
    second = poller.watch(2)
    until(lambda: session.asked.count([1, 2]) >= 2)
    session.live.clear()
    first.result(DEADLINE)
    second.result(DEADLINE)
    pauses = [poller_waiter.pause for poller_waiter in poller._waiters]
    assert max(pauses, default=0.0) <= 0.25


def test_the_thread_ends_with_the_last_waiter_and_starts_again() -> None:
    session = FakeSession(live={1})
    poller = poller_of(session)
    futures = [poller.watch(1), poller.watch(1)]
    thread = poller._thread
    assert thread is not None
    futures[0].cancel()
    assert thread.is_alive()
    futures[1].cancel()
    thread.join(DEADLINE)
    assert not thread.is_alive()
    session.live.clear()
    poller.watch(2).result(DEADLINE)
    assert session.is_closed


def test_it_stays_for_a_second_outside_of_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody who waits for one job after another keeps the connection."""
    monkeypatch.setattr(joins, "is_test", lambda: False)
    session = FakeSession(live=set())
    ours = poller_of(session)
    ours.watch(1).result(DEADLINE)
    thread = ours._thread
    assert thread is not None
    ours.watch(2).result(DEADLINE)
    assert (ours._thread, session.is_closed) == (thread, False)
    monkeypatch.setattr(joins, "LINGER", 0.0)
    ours.watch(3).result(DEADLINE)
    thread.join(DEADLINE)
    assert session.is_closed


def test_an_error_that_waiting_would_not_mend_reaches_the_waiters() -> None:
    session = FakeSession(live=set())
    session.errors.append(psycopg.errors.UndefinedTable("no such table"))
    with pytest.raises(psycopg.errors.UndefinedTable):
        poller_of(session).watch(1).result(DEADLINE)
    assert session.is_closed


def test_a_lost_connection_is_retried(caplog: pytest.LogCaptureFixture) -> None:
    session = FakeSession(live=set())
    session.errors += [psycopg.OperationalError("gone"), psycopg.errors.LockNotAvailable("busy")]
    poller_of(session).watch(1).result(DEADLINE)
    assert session.asked == [[1]] * 3
    assert caplog.messages == ["waiting for jobs in the database 'default': busy"]  # once


@committed
def test_the_server_ends_the_connections(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of the thread, and that of Django in the thread that waits."""
    job = enqueue(worker_tasks.noop)
    other = connect(autocommit=True)
    begun = Event()

    def watched(alias: str, pk: int) -> Any:
        future = watch(alias, pk)
        if not begun.is_set():
            begun.set()
            until(connected)
            ended = other.execute(f"SELECT count(pg_terminate_backend(pid)) {OTHERS}").fetchone()
            assert ended == (2,)
            other.execute("SELECT pgqueue_cancel(ARRAY[%s::bigint])", (pk,))
        return future

    monkeypatch.setattr(joins, "watch", watched)
    assert job.join(DEADLINE).status == "cancelled"
    assert not connected()  # the session was closed before join() returned


@committed
def test_a_forked_process_has_a_thread_of_its_own() -> None:
    job, end = enqueue(worker_tasks.noop), enqueue(worker_tasks.noop)
    cancel(end)
    waits = watch("default", job.pk)
    until(connected)
    with joins._pollers["default"]._changed:  # as if another thread held it at the fork
        child = os.fork()
        if child == 0:  # pragma: no cover - another process
            try:
                watch("default", end.pk).result(DEADLINE)
                os._exit(7)
            finally:
                os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    cancel(job)
    waits.result(DEADLINE)


@pytest.fixture
def pooled() -> Iterator[str]:
    """An alias behind a pooler in transaction mode."""
    with pgbouncer() as pooler, alias("pooled", **pooler.address()) as name:
        yield name


@committed
def test_behind_a_pooler(pooled: str) -> None:
    job = enqueue(worker_tasks.noop)
    future = watch(pooled, job.pk)
    until(lambda: connected(pooled))
    cancel(job)
    future.result(DEADLINE)
    assert Job.objects.get(pk=job.pk).is_finished


@committed
def test_a_missing_table_is_an_error() -> None:
    with alias("empty", OPTIONS={"options": "-c search_path=pg_catalog"}) as name:
        job = Job.from_db(name, ["id"], [1])
        with pytest.raises(ProgrammingError):
            job.join(1)
        with pytest.raises(psycopg.errors.UndefinedTable):
            watch(name, 1).result(DEADLINE)
