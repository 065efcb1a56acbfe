"""Jobs that run here although their rows say otherwise: the server crashed, or the process was suspended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from django.db import connection

from django_pgqueue import Concurrency, enqueue, task
from django_pgqueue.models import Worker
from django_pgqueue.postgres import session as connection_module
from django_pgqueue.worker import sessions
from django_pgqueue.worker.producer import connection as producer_connection
from tests.app import worker_tasks as tasks
from tests.support.workers import backend_of, fresh, until, working

pytestmark = pytest.mark.django_db(transaction=True)

AS_BEFORE_THE_CLAIM = """
    UPDATE pgqueue_job_live SET status = 'pending', attempts = attempts - 1, worker = NULL, lease = NULL,
        started_at = NULL, last_attempted_at = NULL
    WHERE id = %s
"""
GIVEN_TO_ANOTHER = "UPDATE pgqueue_job_live SET worker = 1, lease = lease + 1 WHERE id = %s"
AFTER_A_FAILURE = AS_BEFORE_THE_CLAIM.replace("attempts = attempts - 1", "lost_in_a_row = 1")


@pytest.fixture(autouse=True)
def _quickly(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.PGQUEUE = {"POLL_INTERVAL": 0.1}
    monkeypatch.setattr(sessions, "FIRST_PAUSE", 0.05, raising=False)


@task(concurrency=Concurrency(1))
def one_at_a_time(name: str) -> str:
    tasks.SEEN.append(name)
    return tasks.hold.func(name)


def execute(sql: str, *parameters: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)


@pytest.fixture
def crash(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any, Any], None]:
    """Call it with a producer and a job: the server restarts, and the claim of the job is lost."""
    connect = connection_module.connect

    def crash(producer: Any, job: Any) -> None:
        def refuse(alias: str) -> None:
            raise psycopg.OperationalError("connection refused")

        monkeypatch.setattr(producer_connection, "connect", refuse)
        execute("SELECT pg_terminate_backend(%s, 5000)", backend_of(producer))
        until(lambda: backend_of(producer) is None)
        execute(AS_BEFORE_THE_CLAIM, job.pk)
        monkeypatch.setattr(producer_connection, "connect", connect)

    return crash


def test_a_claim_that_the_server_has_lost_is_made_again_before_others(crash: Any) -> None:
    first, second = enqueue(one_at_a_time, "a"), enqueue(one_at_a_time, "b")
    with working(threads=3) as worker:
        assert tasks.gate("a runs").wait(tasks.DEADLINE)
        crash(worker.producer, first)
        until(lambda: fresh(first).status == "running")
        after = enqueue(tasks.noop)
        until(lambda: fresh(after).status == "done")
        assert not tasks.gate("b runs").is_set()
        tasks.gate("a").set()
        tasks.gate("b").set()
        until(lambda: fresh(second).status == "done")
    assert tasks.SEEN == ["a", "b"]
    assert (fresh(first).status, fresh(first).attempts, fresh(second).attempts) == ("done", 1, 1)
    assert not worker.producer.lifetime.replaced


@pytest.mark.promise("lost-jobs-leave")
def test_a_process_whose_threads_all_run_lost_jobs_is_replaced(caplog: pytest.LogCaptureFixture) -> None:
    first = enqueue(tasks.hold, "a")
    with working(threads=2) as worker:
        assert tasks.gate("a runs").wait(tasks.DEADLINE)
        execute(GIVEN_TO_ANOTHER, first.pk)
        until(lambda: f"job {first.pk} (tests.app.worker_tasks.hold) is lost" in caplog.text)
        after = enqueue(tasks.noop)
        until(lambda: fresh(after).status == "done")
        assert not worker.producer.lifetime.stopping
        until(lambda: Worker.objects.get().lost == 1)
        second = enqueue(tasks.hold, "b")
        assert tasks.gate("b runs").wait(tasks.DEADLINE)
        execute(GIVEN_TO_ANOTHER, second.pk)
        until(lambda: not worker.thread.is_alive())
        tasks.gate("a").set()
        tasks.gate("b").set()
    assert worker.producer.lifetime.replaced
    assert [fresh(job).status for job in (first, second)] == ["running", "running"]


@pytest.mark.promise("lost-jobs-stop")
def test_a_lost_async_job_is_stopped_and_its_place_is_free() -> None:
    job = enqueue(tasks.asleep, "a")
    with working(threads=2) as worker:
        assert tasks.gate("a runs").wait(tasks.DEADLINE)
        execute(GIVEN_TO_ANOTHER, job.pk)
        until(lambda: tasks.SEEN == ["a cancelled"])
        until(lambda: not worker.producer.jobs.places)
        assert not worker.producer.lifetime.stopping
    assert fresh(job).status == "running"


@pytest.mark.promise("lost-jobs-leave")
def test_a_process_never_runs_a_job_twice_at_once() -> None:
    job = enqueue(tasks.hold, "a")
    with working(threads=2) as worker:
        assert tasks.gate("a runs").wait(tasks.DEADLINE)
        tasks.gate("a runs").clear()
        execute(AFTER_A_FAILURE, job.pk)
        until(lambda: not worker.thread.is_alive())
        assert not tasks.gate("a runs").is_set()
        tasks.gate("a").set()
    assert worker.producer.lifetime.replaced
    assert fresh(job).status == "retry"
