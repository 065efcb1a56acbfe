"""``join()`` of jobs and results, and the thread that notices for all of them that their jobs have ended."""

from __future__ import annotations

import copy
import os
import pickle
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from threading import Event
from typing import Any, cast

import psycopg
import pytest
from asgiref.sync import async_to_sync
from django.db import connection, transaction
from django.db.transaction import TransactionManagementError
from django.test import TestCase, override_settings

from django_pgqueue import cancel, enqueue
from django_pgqueue.compat import BaseTaskBackend, TaskResultDoesNotExist, TaskResultStatus
from django_pgqueue.exceptions import WrongBackend
from django_pgqueue.models import Job, joins
from django_pgqueue.models.joins import Poller, watch
from django_pgqueue.testing import dummy_jobs, fake_job, immediate_jobs, run_jobs
from tests.app import inline_tasks, worker_tasks
from tests.support.databases import alias
from tests.support.factories import JobFactory
from tests.support.poolers import pgbouncer
from tests.support.sessions import Connect
from tests.support.waiting import DEADLINE, until
from tests.support.workers import working

committed = pytest.mark.django_db(transaction=True)


def joined(waiter: Any, how: str, timeout: Any = 20) -> Any:
    return waiter.join(timeout) if how == "join" else async_to_sync(waiter.ajoin)(timeout)


in_both_ways = pytest.mark.parametrize("how", ["join", "ajoin"])


@committed
@in_both_ways
def test_a_worker_ends_the_wait(how: str) -> None:
    with working():
        job = enqueue(worker_tasks.add, 1)
        assert joined(job, how) is job
        assert job.status == "done"
        result = worker_tasks.add.enqueue(1)
        assert joined(result, how, timedelta(seconds=20)) is result
    assert result.status == TaskResultStatus.SUCCESSFUL
    assert (result.return_value, len(result.worker_ids)) == (job.result, 1)
    assert result == worker_tasks.add.get_result(result.id)


@committed
@in_both_ways
def test_a_job_that_is_over_already(how: str) -> None:
    stale = enqueue(worker_tasks.noop)
    result = worker_tasks.noop.get_result(str(stale.pk))
    cancel(stale)
    assert joined(stale, how, 0).status == "cancelled"
    assert joined(result, how, 0).status == TaskResultStatus.FAILED


@committed
@in_both_ways
@pytest.mark.parametrize(("row", "state"), [
    ({}, r"it is pending\."),
    ({"run_after": datetime(2090, 1, 1, tzinfo=UTC)}, r"it is pending until 2090-01-01.*\+00:00\."),
    ({"waiting_reason": "its worker was lost"}, r"it is pending \(its worker was lost\)\."),
    (
        {"errors": [{"attempt": 1}, {"class": "a.b.Refused", "message": "no credit", "attempt": 2}]},
        r"it is pending\. The error of attempt 2: Refused: no credit",
    ),
])  # fmt: skip
def test_a_timeout_says_how_far_the_job_is(how: str, row: dict[str, Any], state: str) -> None:
    job = JobFactory.create(task=worker_tasks.noop, **row)
    for timeout in (0, 0.01):
        message = rf"Job {job.pk} \(tests.app.worker_tasks.noop\) is not finished after {timeout} s: {state}$"
        with pytest.raises(TimeoutError, match=message):
            joined(job, how, timeout)
    cancel(job)
    assert joined(Job.from_db("default", ["id"], [job.pk]), how, 0).is_finished, "the id alone is enough"


@in_both_ways
def test_a_bad_timeout(how: str) -> None:
    job = Job.from_db("default", ["id"], [5])
    for timeout, error in (("5", TypeError), (True, TypeError), (-1, ValueError), (float("nan"), ValueError)):
        with pytest.raises(error, match=r"join\(timeout=...\)"):
            joined(job, how, timeout)


@committed
def test_a_job_that_does_not_exist() -> None:
    with transaction.atomic():
        job, result = enqueue(worker_tasks.noop), worker_tasks.noop.enqueue()
        transaction.set_rollback(True)
    for how in ("join", "ajoin"):
        with pytest.raises(Job.DoesNotExist, match="was rolled back, or it is finished and no longer kept"):
            joined(job, how)
        with pytest.raises(TaskResultDoesNotExist, match="does not exist, or was deleted"):
            joined(result, how)


@committed
@in_both_ways
@pytest.mark.parametrize("make", [lambda: enqueue(worker_tasks.noop), worker_tasks.noop.enqueue])
def test_a_transaction_is_refused(how: str, make: Any) -> None:
    old = make()
    cancel(old)
    with transaction.atomic():
        for each in (old, make()):  # also one that is over: whether code works must not depend on luck
            with pytest.raises(TransactionManagementError, match=r"Call join\(\) after the atomic\(\) block"):
                joined(each, how)
    connection.set_autocommit(False)
    try:
        with pytest.raises(TransactionManagementError, match="sees a job only after the commit"):
            joined(old, how)
    finally:
        connection.rollback()
        connection.set_autocommit(True)


class InATestCase(TestCase):
    """A ``TestCase`` is one transaction, which does not count."""

    def test_run_jobs_comes_first(self) -> None:
        job = enqueue(inline_tasks.see, 1)
        with pytest.raises(TransactionManagementError, match=r"is pending, .* Call run_jobs\(\)"):
            job.join(5)
        run_jobs()
        assert job.join(5).status == "done"
        assert joined(inline_tasks.see.get_result(str(job.pk)), "ajoin").is_finished
        with transaction.atomic(), pytest.raises(TransactionManagementError, match="after the atomic"):
            job.join()

    def test_immediate_mode(self) -> None:
        with immediate_jobs():
            assert enqueue(inline_tasks.see, 1).join().status == "done"
            assert inline_tasks.see.enqueue(1).join().is_finished


@in_both_ways
def test_dummy_jobs_are_never_over(how: str) -> None:
    with dummy_jobs():
        for each in (enqueue(inline_tasks.see, 1), inline_tasks.see.enqueue(1)):
            with pytest.raises(ValueError, match="is not in a database, so it will never finish"):
                joined(each, how)


def test_a_job_cannot_wait_for_itself() -> None:
    with fake_job() as job, pytest.raises(ValueError, match="cannot wait for itself"):
        job.join()


@committed
def test_a_result_is_like_one_of_django() -> None:
    result = worker_tasks.noop.enqueue()
    assert result == worker_tasks.noop.get_result(result.id)
    assert copy.copy(result) == result
    assert pickle.loads(pickle.dumps(result)) == result  # noqa: S301
    assert not hasattr(result, "__dict__")
    stock = {"BACKEND": f"{BaseTaskBackend.__module__.rpartition('.')[0]}.dummy.DummyBackend"}
    object.__setattr__(result, "backend", "stock")
    with override_settings(TASKS={"stock": stock}), pytest.raises(WrongBackend, match=r"TASKS\['stock'\]"):
        result.join()


# -- the thread that waits for all


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
            ended = other.execute(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
                " AND backend_type = 'client backend'"  # autovacuum has one, too
            ).fetchone()
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
