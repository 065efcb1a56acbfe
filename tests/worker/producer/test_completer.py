"""When outcomes are reported, and what happens if the server refuses one of them."""

from __future__ import annotations

import json
import time
from time import monotonic
from typing import Any

import psycopg
import pytest
from django.db import connection

from django_pgqueue import enqueue
from django_pgqueue.jobs.finish import Kind, Outcome, finish_parameters
from django_pgqueue.models import Job
from django_pgqueue.worker.executor import outcomes
from django_pgqueue.worker.executor.outcomes import Result
from django_pgqueue.worker.executor.running_job import RunningJob
from django_pgqueue.worker.executor.task_signals import Announcer
from django_pgqueue.worker.executor.threads import BACKLOG_SECONDS
from django_pgqueue.worker.producer.reporter import COLLECT_SECONDS, TRY_LOCKED_AGAIN, Reporter, judged
from tests.app import worker_tasks as tasks
from tests.support.rows import claimed
from tests.support.workers import fresh, run_due


def reporter_with(*outcomes: tuple[Kind, bool]) -> Reporter:
    reporter = Reporter()
    for pk, (kind, reported) in enumerate(outcomes, 1):
        reporter.add([Result(claimed(pk), Outcome(pk, 7, kind), reported=reported)])
    return reporter


def test_outcomes_wait_for_company_but_not_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("django_pgqueue.worker.producer.reporter.monotonic", lambda: 100.0)
    reporter = Reporter()
    assert not reporter.due(1e9, 1)
    reporter.add([Result(claimed(1), Outcome(1, 7))])
    assert not reporter.due(100.0, 2)
    assert reporter.due(100.0, 1)
    assert reporter.due(100.0 + 2 * COLLECT_SECONDS, 2)
    assert reporter.seconds_left(100.0) == pytest.approx(COLLECT_SECONDS, rel=1e-6)
    assert reporter.seconds_left(200.0) == 0
    # While threads have enough to run, the producer is more patient.
    assert not reporter.due(100.0 + 2 * COLLECT_SECONDS, 2, BACKLOG_SECONDS)
    assert reporter.due(100.0 + 2 * BACKLOG_SECONDS, 2, BACKLOG_SECONDS)
    assert reporter.seconds_left(100.0, BACKLOG_SECONDS) == pytest.approx(BACKLOG_SECONDS, rel=1e-6)


class Locked:
    """A server where another session holds a lock on every row."""

    def run(self, *statements: Any, durable: bool) -> None:
        raise psycopg.errors.LockNotAvailable


def test_an_outcome_that_is_held_back_stays_and_is_not_put_off_when_another_one_meets_a_lock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 100.0
    monkeypatch.setattr("django_pgqueue.worker.producer.reporter.monotonic", lambda: now)
    session: Any = Locked()
    reporter = reporter_with(("retry", False))
    assert reporter.report_one_by_one(session) == []
    now += TRY_LOCKED_AGAIN / 2
    reporter.add([Result(claimed(2), Outcome(2, 7))])  # before the first is tried again
    assert reporter.report_one_by_one(session) == []
    assert reporter.ids() == {1, 2}
    assert not reporter.readd_locked(now)
    assert reporter.readd_locked(100.0 + TRY_LOCKED_AGAIN)
    assert {result.row.id for result in reporter._waiting} == {1, 2}


def test_atomic_jobs_have_reported_themselves() -> None:
    reporter = reporter_with(("done", True), ("lost", True))
    assert reporter.statement() is None
    assert [result.outcome.kind for result in judged(reporter.sent(), [])] == ["done", "lost"]
    assert len(reporter) == 0


def test_what_was_not_accepted_has_lost_its_lease(caplog: pytest.LogCaptureFixture) -> None:
    reporter = reporter_with(("done", False), ("failed", False), ("done", True))
    assert reporter.statement() is not None
    reporter.add([Result(claimed(4), Outcome(4, 7))])  # while the server works
    reported = judged(reporter.sent(), [([1], None)])
    assert [result.outcome.kind for result in reported] == ["done", "lost", "done"]
    assert "job 2: the lease was lost, so its outcome (failed) was refused" in caplog.text
    assert reporter.ids() == {4}


def test_jobs_are_reported_in_the_order_of_their_ids() -> None:
    reporter = Reporter()
    reporter.add([Result(claimed(pk), Outcome(pk, 7)) for pk in (3, 1, 2)])
    statement = reporter.statement()
    assert statement is not None
    assert statement[1][0] == "{1,2,3}"


@pytest.mark.parametrize("error", [None, ValueError("broken")])
def test_how_long_a_task_ran_ends_with_the_task_and_its_start_counts_until_the_report(
    error: ValueError | None,
) -> None:
    running = RunningJob(claimed(1, max_attempts=1), tasks.noop, worker=1, alias="default")
    running.started = monotonic() - 5
    ends = outcomes.Outcomes("default", 1, Announcer())
    outcome = ends.succeeded(running, None) if error is None else ends.unsuccessful(running, error)
    assert outcome.ran is not None
    assert outcome.ran >= 5
    time.sleep(0.01)
    parameters = finish_parameters([outcome], 20)
    started_ago, ran = (float(parameters[place].strip("{}")) for place in (7, 8))
    assert ran == pytest.approx(outcome.ran, abs=1e-6)
    assert started_ago >= ran + 0.01 - 1e-6


def unchecked_result(running: Any, value: Any) -> Outcome:
    """Return an outcome without checking the result, as if our own check had a gap."""
    text = None if value is None else json.dumps(value)
    return Outcome(running.row.id, running.row.lease, result=text, started=running.started)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("bad", "message"),
    [("a\\u0000b", "unsupported Unicode escape"), ("[" * 100_000 + "]" * 100_000, "stack depth limit")],
    ids=["NUL", "too deep"],
)
def test_one_outcome_that_the_server_refuses_fails_its_job_only(
    bad: str, message: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def result_of(self: Any, running: Any, value: Any) -> Outcome:
        outcome = unchecked_result(running, value)
        return outcome._replace(result=f'"{bad}"' if bad.startswith("a") else bad) if value == 13 else outcome

    monkeypatch.setattr(outcomes.Outcomes, "succeeded", result_of)
    caplog.set_level("INFO", "django_pgqueue.job")
    jobs = [enqueue(tasks.add, number) for number in range(20)]
    producer = run_due(threads=1)
    for number, job in enumerate(jobs):
        ended = fresh(job)
        if number == 13:
            assert (ended.status, ended.result, ended.attempts) == ("failed", None, 1)
            assert message in ended.errors[0]["message"]
            assert "refused to store" in ended.errors[0]["traceback"]
        else:
            assert (ended.status, ended.result) == ("done", number)
    assert producer.lifetime.executed == 20
    lines = [record.getMessage() for record in caplog.records if record.name == "django_pgqueue.job"]
    assert len([line for line in lines if f"job {jobs[13].pk} " in line and " failed " in line]) == 1
    (error,) = [record for record in caplog.records if record.levelname == "ERROR"]  # of all loggers
    assert (error.name, message in error.getMessage()) == ("django_pgqueue.job", True)


@pytest.mark.django_db(transaction=True)
def test_a_job_that_cannot_even_fail_spoils_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    """A trigger of a user refuses to move the job to history, whatever its outcome is."""
    jobs = [enqueue(tasks.add, number) for number in range(5)]
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN RAISE EXCEPTION 'not this one' USING ERRCODE = '23514'; END $$"
        )
        cursor.execute(
            "CREATE TRIGGER refuse BEFORE DELETE ON pgqueue_job_live FOR EACH ROW"
            f" WHEN (OLD.id = {jobs[2].pk}) EXECUTE FUNCTION refuse()"
        )
        try:
            run_due()
        finally:
            cursor.execute("DROP FUNCTION refuse CASCADE")
    states = [fresh(job).status for job in jobs]
    assert states == ["done", "done", "running", "done", "done"]
    assert "the server refused even to store its failure" in caplog.text
    # It stays on the list of workers, so that its job is recovered when it counts as dead.
    with connection.cursor() as cursor:
        cursor.execute("SELECT id FROM pgqueue_worker")
        assert cursor.fetchall() == [(Job.objects.get(pk=jobs[2].pk).worker,)]
