"""When outcomes and statistics are reported, and what holds up one of them only: a refusal, or a lock."""

from __future__ import annotations

import json
import time
from contextlib import closing, nullcontext
from time import monotonic
from typing import Any
from unittest.mock import Mock

import psycopg
import pytest

from django_pgqueue import enqueue, enqueue_many
from django_pgqueue.jobs.finish import Kind, Outcome, finish_statement
from django_pgqueue.models import Job, JobStat, Worker
from django_pgqueue.models.statistics import HISTOGRAM_BOUNDS
from django_pgqueue.postgres import session as session_module
from django_pgqueue.worker.executor import outcomes
from django_pgqueue.worker.executor.outcomes import Result
from django_pgqueue.worker.executor.progress import ProgressWriter
from django_pgqueue.worker.executor.running_job import RunningJob
from django_pgqueue.worker.executor.task_signals import Announcer
from django_pgqueue.worker.executor.threads import BACKLOG_SECONDS
from django_pgqueue.worker.producer import reporter as reporter_module
from django_pgqueue.worker.producer.reporter import Accounts, Reporter, judged
from tests.app import worker_tasks as tasks
from tests.app.unique_tasks import hold_and_snooze
from tests.support.factories import claimed
from tests.support.jobs import add, sql
from tests.support.sessions import Connect, Connection
from tests.support.workers import fresh, over, run_due, until, working


def reporter_with(*outcomes: tuple[Kind, bool]) -> Reporter:
    reporter = Reporter()
    for pk, (kind, reported) in reversed(list(enumerate(outcomes, 1))):
        reporter.add([Result(claimed(pk), Outcome(pk, 7, kind), reported=reported)])
    return reporter


def test_outcomes_wait_for_company_but_not_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reporter_module, "monotonic", lambda: 100.0)
    reporter = Reporter()
    assert not reporter.due(1e9, 1)
    reporter.add([Result(claimed(1), Outcome(1, 7))])
    assert not reporter.due(100.0, 2)
    assert reporter.due(100.0, 1)
    assert reporter.due(100.0 + 2 * reporter_module.COLLECT_SECONDS, 2)
    assert reporter.seconds_left(100.0) == pytest.approx(reporter_module.COLLECT_SECONDS, rel=1e-6)
    assert reporter.seconds_left(200.0) == 0
    # While threads have enough to run, the producer is more patient.
    assert not reporter.due(100.0 + 2 * reporter_module.COLLECT_SECONDS, 2, BACKLOG_SECONDS)
    assert reporter.due(100.0 + 2 * BACKLOG_SECONDS, 2, BACKLOG_SECONDS)
    assert reporter.seconds_left(100.0, BACKLOG_SECONDS) == pytest.approx(BACKLOG_SECONDS, rel=1e-6)


def test_what_was_not_accepted_has_lost_its_lease(caplog: pytest.LogCaptureFixture) -> None:
    reporter = reporter_with(("done", False), ("failed", False), ("done", True))  # that of an atomic job
    statement: Any = reporter.statement()
    assert statement[1][0] == "{1,2}"
    reporter.add([Result(claimed(4), Outcome(4, 7))])  # while the server works
    reported = judged(reporter.sent(), [([1], None)])
    assert {result.row.id: result.outcome.kind for result in reported} == {1: "done", 2: "lost", 3: "done"}
    assert "job 2: the lease was lost, so its outcome (failed) was refused" in caplog.text
    assert reporter.ids() == {4}


@pytest.mark.parametrize("error", [None, ValueError("broken")])
def test_how_long_a_task_ran_ends_with_the_task_and_its_start_counts_until_the_report(
    error: ValueError | None,
) -> None:
    running = RunningJob(claimed(1, max_attempts=1), tasks.noop, 1, "default", ProgressWriter())
    running.started = monotonic() - 5
    ends = outcomes.Outcomes("default", 1, Announcer())
    outcome: Any = ends.succeeded(running, None) if error is None else ends.unsuccessful(running, error)
    assert outcome.ran >= 5
    time.sleep(0.01)
    _, parameters = finish_statement([outcome])
    started_ago, ran = (float(parameters[place].strip("{}")) for place in (7, 8))
    assert ran == pytest.approx(outcome.ran, abs=1e-6)
    assert started_ago >= ran + 0.01 - 1e-6


# -- refused by the server


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("bad", "message"),
    [('"a\\u0000b"', "unsupported Unicode escape"), ("[" * 100_000 + "]" * 100_000, "stack depth limit")],
    ids=["NUL", "too deep"],
)
def test_one_outcome_that_the_server_refuses_fails_its_job_only(
    bad: str, message: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def unchecked(self: Any, running: Any, value: Any) -> Outcome:
        """As if our own check of the result had a gap."""
        result = bad if value == 13 else json.dumps(value)
        return Outcome(running.row.id, running.row.lease, result=result, started=running.started)

    monkeypatch.setattr(outcomes.Outcomes, "succeeded", unchecked)
    caplog.set_level("INFO", "django_pgqueue.job")
    ids = enqueue_many(tasks.add.bind(number) for number in range(20)).ids
    producer = run_due(threads=1)
    refused = fresh(ids.pop(13))
    assert (refused.status, refused.result, refused.attempts) == ("failed", None, 1)
    assert message in refused.errors[0]["message"]
    assert "refused to store" in refused.errors[0]["traceback"]
    assert [fresh(pk).result for pk in ids] == [number for number in range(20) if number != 13]
    assert Job.objects.filter(status="done").count() == 19
    assert producer.lifetime.executed == 20
    lines = [record.getMessage() for record in caplog.records if record.name == "django_pgqueue.job"]
    assert len([line for line in lines if f"job {refused.pk} " in line and " failed " in line]) == 1
    (error,) = [record for record in caplog.records if record.levelname == "ERROR"]  # of all loggers
    assert (error.name, message in error.getMessage()) == ("django_pgqueue.job", True)


@pytest.mark.django_db(transaction=True)
def test_a_job_that_cannot_even_fail_spoils_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    """A trigger of a user refuses to move the job to history, whatever its outcome is."""
    jobs = [enqueue(tasks.add, number) for number in range(5)]
    sql(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE EXCEPTION 'not this one' USING ERRCODE = '23514'; END $$;"
        " CREATE TRIGGER refuse BEFORE DELETE ON pgqueue_job_live FOR EACH ROW"
        f" WHEN (OLD.id = {jobs[2].pk}) EXECUTE FUNCTION refuse()"
    )
    try:
        run_due()
    finally:
        sql("DROP FUNCTION refuse CASCADE")
    assert [fresh(job).status for job in jobs] == ["done", "done", "running", "done", "done"]
    assert "the server refused even to store its failure" in caplog.text
    # It stays on the list of workers, so that its job is recovered when it counts as dead.
    assert [worker.pk for worker in Worker.objects.all()] == [fresh(jobs[2]).worker]


# -- locked by another session


def test_an_outcome_that_is_held_back_stays_and_is_not_put_off_when_another_one_meets_a_lock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 100.0
    monkeypatch.setattr(reporter_module, "monotonic", lambda: now)
    session = Mock(**{"run.side_effect": psycopg.errors.LockNotAvailable})  # another one has every row
    reporter = reporter_with(("retry", False))
    assert reporter.report_one_by_one(session) == []
    now += reporter_module.TRY_LOCKED_AGAIN / 2
    reporter.add([Result(claimed(2), Outcome(2, 7))])  # before the first is tried again
    assert reporter.report_one_by_one(session) == []
    assert reporter.ids() == {1, 2}
    assert not reporter.readd_locked(now)
    assert reporter.readd_locked(100.0 + reporter_module.TRY_LOCKED_AGAIN)
    assert {result.row.id for result in reporter._waiting} == {1, 2}


@pytest.fixture
def holder(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> Connection:
    """Another session, while workers do not wait for its locks for long."""
    monkeypatch.setitem(session_module._SETTINGS, "lock_timeout", "100")
    monkeypatch.setattr(reporter_module, "TRY_LOCKED_AGAIN", 0.1)
    return connect()


def lock(holder: Connection, job: Job) -> None:
    holder.execute("SELECT FROM pgqueue_job_live WHERE id = %s FOR UPDATE", (job.pk,))


def test_jobs_that_other_sessions_hold_up_hold_up_no_other_one(
    holder: Connection, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    """One has a locked row. For two, another session makes a job with the same unique key."""
    twins = {name: connect() for name in "bc"}
    jobs = [
        enqueue(tasks.hold, "a"),
        *(enqueue(hold_and_snooze.using(unique_key=each), each) for each in twins),
    ]
    with working(threads=4) as worker:
        tasks.runs(*"abc")
        session = worker.producer._connection.session
        lock(holder, jobs[0])
        for name, twin in twins.items():
            add(twin, options=json.dumps({"unique_key": name}), run_after="2060-01-01 UTC")
        tasks.release(*"abc")
        until(lambda: caplog.text.count("cannot be reported yet") >= 3)
        ids = enqueue_many(tasks.add.bind(number) for number in range(20)).ids
        until(lambda: Job.objects.filter(pk__in=ids, status="done").count() == 20)
        assert {fresh(job).status for job in jobs} == {"running"}
        holder.rollback()
        twins["b"].rollback()
        twins["c"].commit()
        until(lambda: all(fresh(job).status != "running" for job in jobs))
        assert worker.producer._connection.session is session
    found = [fresh(job) for job in jobs]
    assert [(job.status, job.attempts) for job in found] == [("done", 1), ("pending", 0), ("cancelled", 0)]
    assert found[2].waiting_reason.endswith("with the same unique key waits in its place")


def test_a_locked_table_is_waited_for_over_the_same_connection_and_one_that_stays_locked_is_left_to_recovery(
    holder: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    with working() as worker, tasks.held(*"abc") as jobs:
        session = worker.producer._connection.session
        holder.execute("LOCK TABLE pgqueue_job_live IN ACCESS EXCLUSIVE MODE")
        tasks.release(*"ab")
        until(lambda: "cannot be reported yet" in caplog.text)
        holder.rollback()
        over(*jobs[:2])
        assert worker.producer._connection.session is session
        lock(holder, jobs[2])
        tasks.release("c")
        worker.stop(grace=0.5)
    assert [(fresh(job).status, fresh(job).attempts) for job in jobs[:2]] == [("done", 1)] * 2
    assert fresh(jobs[2]).status == "running"


# -- statistics


@pytest.mark.parametrize("kind", ["snooze", "release", "unknown", "lost"])
def test_statistics_are_written_if_an_attempt_has_ended_and_the_time_has_come(kind: str) -> None:
    accounts, session = Accounts(), Mock(aside=lambda what: nullcontext())
    accounts.count(claimed(), kind, 0.1, 0.1)
    accounts.write(session, reporter_module.FLUSH_EVERY)
    assert not session.run.called, "this ends no attempt"
    accounts.count(claimed(), "done", 0.1, 0.1)
    accounts.write(session, reporter_module.FLUSH_EVERY - 1)
    assert not session.run.called
    for now in (reporter_module.FLUSH_EVERY, 3 * reporter_module.FLUSH_EVERY):
        accounts.write(session, now)
        session.run.assert_called_once()


@pytest.mark.django_db(transaction=True)
def test_minutes_queues_and_tasks_are_counted_apart_and_added_up() -> None:
    accounts = Accounts()
    with closing(session_module.connect("default")) as session:
        accounts.count(claimed(last_attempted_at="2026-11-21 01:38:16.5+00"), "done", 0.5, 0.25)
        accounts.count(claimed(last_attempted_at="2026-11-21 01:38:59+00"), "done", 0.5, 0.25)
        accounts.count(claimed(last_attempted_at="2026-11-21 01:39:00+00"), "failed", 1e9, 0.0)
        accounts.count(claimed(queue_name="mail"), "retry", 0.0, 0.0)
        accounts.count(claimed(task_path='odd"path\\'), "cancelled", 0.0, 0.0)
        accounts.write(session, monotonic(), is_last=True)
        accounts.count(claimed(last_attempted_at="2026-11-21 01:38:00+00"), "done", 1.0, 1.0)
        accounts.write(session, monotonic(), is_last=True)

    def row(**which: Any) -> JobStat:
        return JobStat.objects.get(**which)

    first = row(minute="2026-11-21T01:38:00Z", queue_name="default", task_path="tests.app.tasks.noop")
    assert (first.done, first.failed, first.retried, first.cancelled) == (3, 0, 0, 0)
    assert (first.wait_seconds, first.run_seconds) == (2.0, 1.5)
    assert sum(first.wait_histogram) == sum(first.run_histogram) == 3
    assert len(first.wait_histogram) == len(HISTOGRAM_BOUNDS) + 1
    second = row(minute="2026-11-21T01:39:00Z")
    assert (second.failed, second.wait_histogram[-1], second.run_histogram[0]) == (1, 1, 1)
    assert row(queue_name="mail").retried == 1
    assert row(task_path='odd"path\\').cancelled == 1
