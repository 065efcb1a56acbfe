"""The worker loses its connection while jobs run: results arrive, no job is lost, and no job runs twice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from django.db import connection

from django_pgqueue import enqueue, enqueue_many
from django_pgqueue.models import Job, Worker
from django_pgqueue.postgres import session as connection_module
from django_pgqueue.postgres.session import Session
from django_pgqueue.worker import sessions
from django_pgqueue.worker.producer import connection as producer_connection
from tests.app import worker_tasks as tasks
from tests.support.workers import RunningWorker, backend_of, fresh, make_producer, run_due, until, working

pytestmark = pytest.mark.django_db(transaction=True)


def cut(worker: RunningWorker) -> None:
    """End the producer's session on the server, and wait until it has noticed and come back."""
    pid = until(lambda: backend_of(worker.producer))
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])
        assert cursor.fetchone() == (True,)
    until(lambda: backend_of(worker.producer) not in (None, pid), what="a new connection")


@pytest.fixture
def no_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Call it to make the server unreachable for workers, and once more with False to bring it back.

    It gives a list of the tries to connect.
    """
    connect = connection_module.connect

    def switch(gone: bool = True) -> list[str]:
        tries = []

        def refuse(alias: str) -> Session:
            tries.append(alias)
            raise psycopg.OperationalError("connection refused")

        monkeypatch.setattr(producer_connection, "connect", refuse if gone else connect)
        return tries

    yield switch
    switch(False)


@pytest.mark.promise("server-restart")
def test_the_result_of_a_job_that_ran_meanwhile_arrives() -> None:
    job = enqueue(tasks.hold, "a")
    with working() as worker:
        assert tasks.gate("a runs").wait(tasks.DEADLINE)
        cut(worker)
        tasks.gate("a").set()
        until(lambda: fresh(job).status == "done")
    assert (fresh(job).result, fresh(job).attempts) == ("a", 1)


@pytest.mark.promise("reconnects")
def test_an_idle_worker_comes_back_and_is_called_again(settings: Any) -> None:
    settings.PGQUEUE = {"POLL_INTERVAL": 60}
    with working() as worker:
        until(lambda: Worker.objects.exists())
        cut(worker)
        job = enqueue(tasks.noop)
        until(lambda: fresh(job).status == "done")
    assert not Worker.objects.exists()


@pytest.mark.promise("at-least-once")
def test_nothing_is_lost_and_nothing_runs_twice_however_often_it_is_cut() -> None:
    with working(threads=3) as worker:
        ids: list[int] = []
        for round_ in range(4):
            ids += enqueue_many(tasks.see.bind(f"{round_}-{number}") for number in range(300)).ids
            cut(worker)
        until(lambda: Job.objects.filter(pk__in=ids, status="done").count() == len(ids))
    assert len(tasks.SEEN) == len(set(tasks.SEEN)) == 1200


def test_claims_whose_answer_was_lost_go_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server commits the claim, and the connection breaks before its answer is here."""
    run = Session.run
    lost: list[Any] = []

    def lossy(self: Session, *statements: Any, durable: bool = False) -> Any:
        answers = run(self, *statements, durable=durable)
        if not lost and any("picked" in query for query, _ in statements) and answers[-1]:
            lost.extend(row[0] for row in answers[-1])
            raise psycopg.OperationalError("server closed the connection unexpectedly")
        return answers

    monkeypatch.setattr(Session, "run", lossy)
    ids = enqueue_many(tasks.see.bind(number) for number in range(50)).ids
    run_due()
    assert lost
    assert sorted(tasks.SEEN) == list(range(50))
    assert Job.objects.filter(pk__in=ids, status="done", attempts=1).count() == 50


def test_a_report_whose_answer_was_lost_does_no_harm(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run = Session.run
    lost: list[bool] = []

    def lossy(self: Session, *statements: Any, durable: bool = False) -> Any:
        answers = run(self, *statements, durable=durable)
        if not lost and any("_pgqueue_finish" in query for query, _ in statements):
            lost.append(True)
            raise psycopg.OperationalError("server closed the connection unexpectedly")
        return answers

    monkeypatch.setattr(Session, "run", lossy)
    job = enqueue(tasks.add, 1, 2)
    run_due()
    assert lost
    assert (fresh(job).status, fresh(job).result, fresh(job).attempts) == ("done", 3, 1)
    assert "its outcome (done) was refused" in caplog.text


@pytest.mark.usefixtures("undeclared")
def test_rows_whose_policy_could_not_be_written_run_later(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Session.run
    lost: list[bool] = []

    def lossy(self: Session, *statements: Any, durable: bool = False) -> Any:
        if not lost and any("_pgqueue_fill_policy" in query for query, _ in statements):
            lost.append(True)
            raise psycopg.OperationalError("server closed the connection unexpectedly")
        return run(self, *statements, durable=durable)

    monkeypatch.setattr(Session, "run", lossy)
    with connection.cursor() as cursor:
        cursor.execute("SELECT pgqueue_enqueue('tests.app.worker_tasks.noop')")
        (pk,) = cursor.fetchone()
    run_due()
    assert lost
    assert (fresh(pk).status, fresh(pk).attempts) == ("done", 1)


def test_a_deadlock_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Session.run
    deadlocks: list[bool] = []

    def unlucky(self: Session, *statements: Any, durable: bool = False) -> Any:
        if len(deadlocks) < 3 and any("_pgqueue_finish" in query for query, _ in statements):
            deadlocks.append(True)
            raise psycopg.errors.DeadlockDetected("deadlock detected")
        return run(self, *statements, durable=durable)

    monkeypatch.setattr(Session, "run", unlucky)
    job = enqueue(tasks.add, 1)
    run_due()
    assert len(deadlocks) == 3
    assert fresh(job).status == "done"


def test_a_worker_that_starts_without_a_server_waits_for_it(no_server: Any) -> None:
    job = enqueue(tasks.noop)
    no_server()
    producer = make_producer()
    worker = RunningWorker(producer)
    until(lambda: producer._waker._asleep, what="waiting for the server")
    no_server(False)
    until(lambda: fresh(job).status == "done")
    worker.stop()


def test_a_worker_without_a_server_and_without_jobs_stops_at_once(no_server: Any) -> None:
    no_server()
    worker = RunningWorker(make_producer())
    until(lambda: worker.producer._waker._asleep)
    worker.stop(grace=60)
    assert not worker.thread.is_alive()


def test_jobs_that_end_while_the_server_is_away_do_not_hurry_the_next_try(
    no_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "FIRST_PAUSE", 1000.0)
    jobs = [enqueue(tasks.hold, key) for key in "abc"]
    producer = make_producer(threads=3)
    producer._connection.outage = sessions.Outage(longest=1000.0)
    worker = RunningWorker(producer)
    for key in "abc":
        assert tasks.gate(f"{key} runs").wait(tasks.DEADLINE)
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s, 5000)", [backend_of(producer)])
    until(lambda: producer._connection.session is None)
    tries = no_server()
    for number, key in enumerate("abc", 1):
        until(lambda: producer._waker._asleep)
        tasks.gate(key).set()
        until(lambda number=number: len(producer._executor.results) == number)  # type: ignore[misc]
    until(lambda: producer._waker._asleep)
    assert tries == []
    no_server(False)
    worker.stop(60)
    assert [fresh(job).status for job in jobs] == ["done", "done", "done"]


def test_a_worker_that_is_stopped_while_the_server_is_away_reports_within_the_grace(no_server: Any) -> None:
    job = enqueue(tasks.hold, "a")
    worker = RunningWorker(make_producer())
    assert tasks.gate("a runs").wait(tasks.DEADLINE)
    no_server()
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s, 5000)", [backend_of(worker.producer)])
    until(lambda: worker.producer._connection.session is None)
    worker.producer.stop(60)
    tasks.gate("a").set()
    no_server(False)
    worker.stop(60)
    assert fresh(job).status == "done"
    assert not Worker.objects.exists()


def test_when_the_grace_is_over_and_the_server_away_the_job_is_left_to_recovery(
    no_server: Any, caplog: pytest.LogCaptureFixture
) -> None:
    job = enqueue(tasks.hold, "a")
    worker = RunningWorker(make_producer())
    assert tasks.gate("a runs").wait(tasks.DEADLINE)
    no_server()
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s, 5000)", [backend_of(worker.producer)])
    worker.stop(0)
    assert "connection lost; 1 unreported jobs will run again" in caplog.text
    assert fresh(job).status == "running"
    assert [worker.pk for worker in Worker.objects.all()] == [fresh(job).worker]
    tasks.gate("a").set()


def test_a_worker_that_was_forgotten_as_dead_registers_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "REGISTER_EVERY", 0.05)
    with working():
        worker = until(Worker.objects.first)
        Worker.objects.all().delete()
        until(lambda: Worker.objects.filter(pk=worker.pk).exists())
