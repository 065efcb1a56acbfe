"""An atomic job whose transaction was lost with its connection runs again, and the attempt does not count."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from django.db import connection
from django.db.utils import InternalError, OperationalError

from django_pgqueue import enqueue
from django_pgqueue.models import Job
from django_pgqueue.worker.executor import outcomes
from django_pgqueue.worker.executor.task_signals import Announcer
from tests.app import worker_tasks as tasks
from tests.app.models import Entry
from tests.support.rows import claimed
from tests.support.sessions import Connect
from tests.support.workers import fresh, run_due, until, working

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])

LOST_SESSIONS = (
    "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
    " WHERE datname = current_database() AND pid <> pg_backend_pid() AND state = 'idle in transaction'"
)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let lost jobs run again without a delay."""
    monkeypatch.setattr(outcomes, "DELAYS", (0.0, 0.0))


@pytest.mark.promise("atomic-attempt-back")
def test_a_terminated_session_takes_no_attempt(caplog: pytest.LogCaptureFixture) -> None:
    job = enqueue(tasks.effect, "a", then="wait")
    with working(), connection.cursor() as cursor:
        assert tasks.gate("a runs").wait(tasks.DEADLINE)
        cursor.execute(LOST_SESSIONS)
        tasks.gate("a").set()
        until(lambda: fresh(job).status == "done")
    assert (fresh(job).attempts, fresh(job).errors) == (1, [])
    assert tasks.SEEN == [1, 1]
    assert Entry.objects.count() == 1
    assert f"job {job.pk} is requeued, because its transaction was lost" in caplog.text


TWO_ANSWERS = InternalError("received 2 results from command 'COMMIT'"), psycopg.InternalError()
CRASHED = OperationalError("server conn crashed?"), psycopg.errors.ProtocolViolation()


@pytest.mark.parametrize("is_lost", [True, False])
@pytest.mark.parametrize(("error", "cause"), [TWO_ANSWERS, CRASHED], ids=["beside an answer", "pgbouncer"])
def test_the_error_of_a_pooler_takes_no_attempt(error: Exception, cause: Exception, is_lost: bool) -> None:
    """A pooler sends one when a session is ended, maybe beside the answer to the COMMIT. psycopg refuses two
    answers to one statement.
    """
    connection.ensure_connection()
    error.__cause__ = cause
    running: Any = SimpleNamespace(
        row=claimed(1), task=SimpleNamespace(on_lost="rerun"), told=None, is_finishing=True,
        session=outcomes.session_of("default"),
    )  # fmt: skip
    if is_lost:
        connection.close()
        connection.ensure_connection()
    outcome = outcomes.Outcomes("default", 1, Announcer())._lost_transaction(running, error)
    assert (outcome and outcome.kind) == ("release" if is_lost else None)


@pytest.mark.parametrize(
    ("code", "status"), [("disk_full", "done"), ("configuration_limit_exceeded", "failed")]
)
@pytest.mark.promise("atomic-attempt-back")
def test_a_full_disk_takes_no_attempt(code: str, status: str, caplog: pytest.LogCaptureFixture) -> None:
    """Of the other limits of a server, a task may exceed one by itself."""
    job = enqueue(tasks.meet_full_disk, code)
    run_due()
    assert (fresh(job).status, fresh(job).attempts) == (status, 1)
    assert len(tasks.SEEN) == 1 + (status == "done")
    assert set(tasks.SEEN) == {1}
    assert Entry.objects.count() == (status == "done")
    assert (f"job {job.pk} is requeued" in caplog.text) == (status == "done")


def test_the_timeouts_of_the_role_take_no_attempt_at_the_end_of_the_job(
    caplog: pytest.LogCaptureFixture, connect: Connect
) -> None:
    """Race: somebody else has the row of the job for a moment when an atomic task ends."""
    job = enqueue(tasks.hurry, "a")
    with working():
        assert tasks.gate("a runs").wait(tasks.DEADLINE)
        other = connect()
        other.execute("SELECT FROM pgqueue_job_live WHERE id = %s FOR UPDATE", [job.pk])
        tasks.gate("a").set()
        until(lambda: "its transaction was lost: canceling statement due to lock timeout" in caplog.text)
        other.rollback()
        until(lambda: fresh(job).status == "done")
    assert (fresh(job).attempts, fresh(job).errors) == (1, [])
    assert tasks.SEEN == [1, 1]
    assert Entry.objects.count() == 1


def test_a_timeout_of_the_task_itself_takes_an_attempt() -> None:
    job = enqueue(tasks.meet_full_disk, "lock_not_available")
    run_due()
    assert (fresh(job).status, tasks.SEEN) == ("failed", [1])


def test_the_row_says_why_it_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outcomes, "DELAYS", (600.0, 600.0))
    job = enqueue(tasks.end_session)
    run_due()
    waiting = fresh(job)
    assert (waiting.status, waiting.attempts) == ("pending", 0)
    assert waiting.waiting_reason == outcomes.CONNECTION_LOST
    assert Job.objects.filter(pk=job.pk, run_after__gt=waiting.enqueued_at).exists()


@pytest.mark.parametrize(
    ("on_lost", "runs"),
    [("rerun", outcomes.MOST_GIVEN_BACK + 1), ("fail", 1)],
    ids=["the task is the reason", "it must not run twice"],
)
@pytest.mark.promise("atomic-attempts-end")
def test_it_does_not_run_forever(on_lost: str, runs: int) -> None:
    job = enqueue(tasks.end_session)
    Job.objects.filter(pk=job.pk).update(on_lost=on_lost)
    run_due()
    assert (fresh(job).status, fresh(job).attempts) == ("failed", 1)
    assert fresh(job).errors[-1]["class"] == "django.db.utils.OperationalError"
    assert (set(tasks.SEEN), len(tasks.SEEN)) == ({1}, runs)
    assert not Entry.objects.exists()


def test_the_connection_of_another_database_is_the_business_of_the_task() -> None:
    job = enqueue(tasks.end_session, "other")
    run_due()
    assert (fresh(job).status, tasks.SEEN) == ("failed", [1])
