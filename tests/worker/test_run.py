"""A job from enqueue to its end in one worker, never run twice: what ``django.tasks`` sees of it, and the
statements that it takes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from django.test import override_settings

from django_pgqueue import current_job, enqueue, enqueue_many, retry
from django_pgqueue.compat import TaskResultStatus, task_backends
from django_pgqueue.maintenance import rounds
from django_pgqueue.maintenance.recovery import EndedProcess, recover
from django_pgqueue.models import Job, Worker
from django_pgqueue.postgres import session as session_module
from django_pgqueue.postgres.session import Session
from django_pgqueue.worker.options import WorkerOptions
from django_pgqueue.worker.sessions import Registration
from django_pgqueue.worker.started_jobs import StartedJobs
from django_pgqueue.worker.supervisor.child import Child
from django_pgqueue.worker.supervisor.heartbeat import Heartbeat, _states
from tests.app import worker_tasks as tasks
from tests.support.databases import alias, in_schema, migrate
from tests.support.jobs import fetch, sql
from tests.support.waiting import run
from tests.support.workers import fresh, make_producer, run_due, until

pytestmark = pytest.mark.django_db(transaction=True)


def test_jobs_that_are_over_know_how_long_they_ran() -> None:
    done = [tasks.noop.bind(), tasks.anote.bind("a"), tasks.effect.bind("a")]
    ids = enqueue_many([*done, tasks.raise_odd.bind("SystemExit"), tasks.cancel_itself.bind()]).ids
    run_due()
    jobs: list[Any] = [fresh(pk) for pk in ids]
    assert [job.status for job in jobs] == ["done", "done", "done", "failed", "cancelled"]
    for job in jobs:
        passed = (job.finished_at - job.last_attempted_at).total_seconds()
        assert 0 <= job.duration <= passed + 1e-5


def test_a_worker_keeps_to_its_queues() -> None:
    for name in "abcd":
        enqueue(tasks.see.using(queue_name=name), name)
    ways: list[tuple[dict[str, Any], str]] = [
        ({"queues": ("a",)}, "a"), ({"exclude_queues": ("a", "c", "d")}, "b"), ({}, "cd")
    ]  # fmt: skip
    for options, seen in ways:
        tasks.SEEN.clear()
        run_due(**options)
        assert "".join(sorted(tasks.SEEN)) == seen


@pytest.mark.usefixtures("undeclared")
def test_a_job_enqueued_in_plain_sql_gets_the_policy_of_its_task() -> None:
    pk = sql("SELECT pgqueue_enqueue('tests.app.worker_tasks.fail', '[\"x\"]'::jsonb)")
    assert (fresh(pk).max_attempts, fresh(pk).on_lost) == (None, None)
    run_due()
    failed = fresh(pk)
    assert (failed.status, failed.attempts, failed.max_attempts, failed.on_lost) == ("failed", 3, 3, "rerun")


def test_a_worker_works_in_the_schema_that_only_options_name() -> None:
    with alias("schema", OPTIONS=in_schema("queue_only")) as name:
        sql("DROP SCHEMA IF EXISTS queue_only CASCADE; CREATE SCHEMA queue_only", using=name)
        try:
            migrate(name)
            sql("SELECT pgqueue_enqueue('tests.app.worker_tasks.noop')", using=name)
            run_due(alias=name)
            assert fetch("SELECT status FROM pgqueue_job", using=name) == [("done",)]
        finally:
            sql("DROP SCHEMA queue_only CASCADE", using=name)
    assert not Job.objects.exists()


# -- results of django.tasks

OURS = {"BACKEND": "django_pgqueue.backend.PgQueueBackend"}


def test_a_result_follows_its_job_through_failures_and_a_retry_by_hand() -> None:
    result = tasks.fail_once.enqueue()
    assert (result.status, result.attempts) == (TaskResultStatus.READY, 0)
    with pytest.raises(ValueError, match="not finished"):
        _ = result.return_value
    first = run_due().worker
    result.refresh()
    assert result.status == TaskResultStatus.SUCCESSFUL
    assert (result.return_value, result.worker_ids) == (Job.objects.get().result, [str(first)] * 2)
    (error,) = result.errors
    assert issubclass(error.exception_class, Exception)
    assert "fail_once" in error.traceback
    assert retry(result, done=True) == 1
    result.refresh()
    assert (result.status, result.attempts, result.errors) == (TaskResultStatus.READY, 2, [error])
    second = run_due().worker
    run(result.arefresh())
    assert result.status == TaskResultStatus.SUCCESSFUL
    # Who had done it is forgotten; who has failed is with the error.
    assert (result.worker_ids, result.errors) == ([str(first), "?", str(second)], [error])


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_a_job_in_another_database_runs_and_is_found_under_one_id() -> None:
    with override_settings(TASKS={"default": OURS, "there": {**OURS, "OPTIONS": {"database": "other"}}}):
        result = tasks.contextual.using(backend="there").enqueue(7)
        run_due(alias="other")
        result.refresh()
        assert result.return_value == [1, result.id, 7]  # the context has the same id
        assert task_backends["default"].get_result(result.id).return_value == [1, result.id, 7]


def test_the_current_job_and_the_context_are_of_the_job_and_there_is_none_outside() -> None:
    results: list[Any] = [
        tasks.inside.enqueue(),
        tasks.sees_context.enqueue(2),
        tasks.asees_context.enqueue(2),
    ]
    run_due()
    for result in results:
        result.refresh()
    inside, *seen = results
    assert inside.return_value == {"id": int(inside.id), "attempts": 1, "status": "running", "lease": True}
    for result in seen:
        assert result.return_value == {
            "is current": True, "is Django's": True, "job": [int(result.id), "running", 2],
            "result": [result.id, "RUNNING", 2, ["builtins.ValueError"]],
        }  # fmt: skip
    with pytest.raises(LookupError, match=r"No job is running here"):
        current_job()


# --- What a worker sends: how little while it is idle, in one piece what belongs together, and how durably


SETTLED = 60.0  # seconds after which it looks as rarely as it ever does
WATCHED = 200.0


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
