"""Atomic tasks: the body and the finish of the job are one transaction, so both are committed, or neither.

If the transaction is lost with its connection, the job runs again, and the attempt does not count.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from asgiref.sync import sync_to_async
from django.db import DatabaseError, InternalError, OperationalError, connection, transaction
from django.db.transaction import TransactionManagementError

from django_pgqueue import BoundTask, current_job, enqueue, task
from django_pgqueue.compat import InvalidTask, task_started
from django_pgqueue.models import Job
from django_pgqueue.testing import run_jobs
from django_pgqueue.worker.executor import outcomes
from django_pgqueue.worker.executor.task_signals import Announcer
from tests.app import worker_tasks as tasks
from tests.app.models import Entry
from tests.support.factories import claimed
from tests.support.jobs import sql
from tests.support.sessions import Connect, open_raw
from tests.support.workers import fresh, run_due, until, working

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])


@contextmanager
def held(call: BoundTask) -> Iterator[Job]:
    """Run an atomic job that has written its row and waits, uncommitted. It continues at the end of the
    block, until it has ended.
    """
    job = enqueue(call)
    with working():
        tasks.runs("a")
        yield job
        tasks.release("a")
        until(lambda: not (left := Job.objects.filter(pk=job.pk).first()) or left.status != "running")


EFFECT = tasks.effect.bind("a", then="wait")


@pytest.mark.promise("atomic-exactly-once")
def test_effect_and_finish_have_one_transaction() -> None:
    job = enqueue(tasks.effect, "a")
    run_due()
    assert sql("SELECT xmin FROM app_entry") == sql("SELECT xmin FROM pgqueue_job WHERE id = %s", job.pk)
    done = fresh(job)
    assert (done.status, done.result, done.attempts, done.started_at is None) == ("done", "a", 1, False)


@pytest.mark.promise("atomic-exactly-once")
def test_what_is_no_success_takes_the_effect_back() -> None:
    ends = {"raise": ("failed", 2, 2), "bad result": ("failed", 1, 1), "snooze": ("pending", 0, 0)}
    jobs = {then: enqueue(tasks.effect, "a", then=then) for then in ends}
    run_due()
    found = {then: fresh(job) for then, job in jobs.items()}
    assert {then: (job.status, job.attempts, len(job.errors)) for then, job in found.items()} == ends
    assert sorted(tasks.SEEN) == [1, 1, 1, 2]
    assert not Entry.objects.exists()


@pytest.mark.promise("atomic-after-takeover")
def test_a_lost_lease_raises_and_takes_the_effect_back(caplog: pytest.LogCaptureFixture) -> None:
    with held(EFFECT) as job:
        # This is what a recovery does. The job now belongs to another worker.
        sql(
            "UPDATE pgqueue_job_live SET status = 'pending', worker = NULL, lease = NULL,"
            " run_after = now() + interval '1 hour' WHERE id = %s", job.pk,
        )  # fmt: skip
    assert "lost its lease" in caplog.text
    assert (fresh(job).status, fresh(job).errors) == ("pending", [])
    assert not Entry.objects.exists()


@pytest.mark.promise("faults-cost-no-attempt")
def test_a_lost_lease_that_is_claimed_again_costs_no_attempt() -> None:
    """By the process that was stopped past its lease, and that has lost its connection meanwhile."""

    class ClaimAgain(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "lost its lease" in record.getMessage():
                with open_raw() as other:
                    other.execute(
                        "UPDATE pgqueue_job_live SET status = 'running', attempts = 1, worker = %s,"
                        " lease = %s WHERE id = %s", [*claim, job.pk],
                    )  # fmt: skip

    logger, handler = logging.getLogger("django_pgqueue"), ClaimAgain()
    logger.addHandler(handler)
    try:
        with held(EFFECT) as job:
            claim = fresh(job).worker, fresh(job).lease
            sql(
                "UPDATE pgqueue_job_live SET status = 'pending', attempts = 0, worker = NULL, lease = NULL,"
                " run_after = now() + interval '1 hour' WHERE id = %s", job.pk,
            )  # fmt: skip
    finally:
        logger.removeHandler(handler)
    found = fresh(job)
    assert (found.status, found.attempts, found.errors) == ("pending", 0, [])
    assert found.waiting_reason == "The lease of the job was lost, so its transaction was rolled back."
    assert not Entry.objects.exists()


@pytest.mark.promise("atomic-serialization")
def test_a_serialization_failure_is_done_again() -> None:
    """Two jobs read and write the same row. Under REPEATABLE READ, the second one fails with 40001."""
    Entry.objects.create(key="counter", note="0")
    jobs = [enqueue(tasks.increment, "counter") for _ in range(2)]
    with working(threads=2):
        until(lambda: tasks.SEEN.count("read") == 2)
        tasks.gate("counter").set()
        until(lambda: all(fresh(job).status == "done" for job in jobs))
    assert (Entry.objects.get().note, len(tasks.SEEN)) == ("2", 3)
    assert [fresh(job).attempts for job in jobs] == [1, 1]


CONFLICTS: list[list[Exception]] = []


@task(atomic=True, max_attempts=1)
def conflicts_in_a_group() -> None:
    if CONFLICTS:
        conflict = OperationalError()
        conflict.__cause__ = psycopg.errors.SerializationFailure()
        raise ExceptionGroup("group", [conflict, *CONFLICTS.pop()])


@pytest.mark.parametrize(("beside", "status"), [([], "done"), ([ValueError()], "failed")])
def test_a_serialization_failure_in_a_group_is_done_again(beside: list[Exception], status: str) -> None:
    CONFLICTS[:] = [beside]
    job = enqueue(conflicts_in_a_group)
    run_due()
    assert (fresh(job).status, fresh(job).attempts) == (status, 1)


def test_the_job_must_lie_where_the_task_works() -> None:
    with pytest.raises(InvalidTask, match=r"works on the database 'default'.*in\s+'other'"):
        enqueue(tasks.effect.using(database="other"), "a")
    # SQL can enqueue it all the same.
    sql("SELECT pgqueue_enqueue('tests.app.worker_tasks.effect', '[\"a\"]'::jsonb)", using="other")
    run_due(alias="other")
    job = Job.objects.using("other").get()
    assert (job.status, tasks.SEEN) == ("failed", [])
    assert "one transaction cannot span both" in job.errors[0]["message"]
    with pytest.raises(InvalidTask, match="atomic"):

        @task(atomic=True)
        async def never() -> None: ...


@task(atomic=True, max_attempts=1)
def writes_where_its_job_is(*, fails: bool) -> None:
    Entry.objects.using(current_job().database).create(key="here")
    if fails:
        raise ValueError("after the write")


def test_an_atomic_task_works_on_the_shard_of_its_job(settings: Any) -> None:
    settings.PGQUEUE = {"SHARDS": ["default", "other"]}
    fails = enqueue(writes_where_its_job_is.using(database="other"), fails=True)
    run_due(alias="other")
    fails.refresh_from_db()
    assert (fails.status, Entry.objects.using("other").count()) == ("failed", 0)
    enqueue(writes_where_its_job_is.using(database="other"), fails=False)
    run_due(alias="other")
    assert (Entry.objects.using("other").count(), Entry.objects.count()) == (1, 0)
    settings.PGQUEUE = {"SHARDS": ["default"]}
    with pytest.raises(InvalidTask, match="PGQUEUE\\['SHARDS'\\]"):
        enqueue(writes_where_its_job_is.using(database="other"), fails=False)


# -- transactions that do not end as they should


@task(atomic=True, max_attempts=1)
def raises_after_the_commit() -> str:
    Entry.objects.create(key="a")
    transaction.on_commit(lambda: tasks.SEEN.append("before"))
    transaction.on_commit(lambda: [][0])
    return "done"


def test_a_job_whose_on_commit_function_raises_is_done(caplog: pytest.LogCaptureFixture) -> None:
    job = enqueue(raises_after_the_commit)
    run_due()
    assert (fresh(job).status, fresh(job).result, fresh(job).errors) == ("done", "done", [])
    assert (Entry.objects.count(), tasks.SEEN) == (1, ["before"])
    assert f"job {job.pk} (" in caplog.text
    assert "is done, but a function that it has passed to on_commit() raised an exception" in caplog.text
    assert "IndexError" in caplog.text
    assert "lost its lease" not in caplog.text
    # A test sees the exception.
    enqueue(raises_after_the_commit)
    with pytest.raises(IndexError), transaction.atomic():
        run_jobs()


@task(atomic=True, max_attempts=1)
def ends_its_transaction(how: str, then: str) -> None:
    Entry.objects.create(key=f"{how} {then}")
    try:
        if how == "psycopg":
            connection.connection.rollback()
        else:
            sql(how)
    except TransactionManagementError:
        if then != "goes on":
            raise
    if then == "writes":
        Entry.objects.create(key="after it")


@pytest.mark.promise("atomic-own-rollback")
def test_an_atomic_job_that_ends_its_transaction_is_not_done_and_does_not_affect_the_next() -> None:
    ways = ("ROLLBACK", "COMMIT", "psycopg")
    calls = [ends_its_transaction.bind(how, then) for how in ways for then in ("", "writes", "goes on")]
    jobs = [(enqueue(call), enqueue(tasks.effect, "next"), enqueue(tasks.noop)) for call in calls]
    run_due(threads=1)
    for call, (job, *after) in zip(calls, jobs, strict=True):
        failed = fresh(job)
        assert failed.status == "failed", call.args
        assert (
            "has ended its transaction, with a COMMIT or ROLLBACK of its own" in failed.errors[0]["message"]
        )
        assert [fresh(each).status for each in after] == ["done", "done"], call.args
    assert not Entry.objects.filter(key="after it").exists()
    assert Entry.objects.filter(key="next").count() == 9


@task(max_attempts=1)
def leaves_a_transaction_open(what: str) -> None:
    transaction.set_autocommit(False)
    if what == "reads":
        Entry.objects.count()
    elif what == "breaks":
        with suppress(DatabaseError):
            sql("SELECT 1 / 0")
    elif what == "writes":
        Entry.objects.create(key="lost")


@task(max_attempts=1)
async def borrows_a_thread(what: str) -> None:
    await sync_to_async(leaves_a_transaction_open.func)(what)


@task(max_attempts=1)
async def uses_any_thread(what: str) -> None:
    await asyncio.to_thread(leaves_a_transaction_open.func, what)


INLINE = partial(run_jobs, raise_failures=False)
WORKER = partial(run_due, threads=1)


@pytest.mark.parametrize(
    ("left", "run_them"),
    [(leaves_a_transaction_open, WORKER), (borrows_a_thread, INLINE), (uses_any_thread, WORKER)],
    ids=["sync", "async, inline", "to_thread"],
)
@pytest.mark.promise("open-transaction-fails")
def test_a_job_that_leaves_a_transaction_open_is_not_done_if_that_loses_something(
    left: Any, run_them: Callable[[], object]
) -> None:
    kinds = {"writes": "failed", "breaks": "failed", "reads": "done", "nothing": "done"}
    jobs = {kind: (enqueue(left, kind), enqueue(tasks.effect, kind)) for kind in kinds}
    run_them()
    connection.close()  # what is not committed is lost
    for kind, (job, after) in jobs.items():
        assert (fresh(job).status, fresh(after).status) == (kinds[kind], "done"), kind
        if kinds[kind] == "failed":
            message = fresh(job).errors[0]["message"]
            assert "has left a transaction open in the database default" in message
    assert {entry.key for entry in Entry.objects.all()} == {*kinds}


def test_an_atomic_job_commits_although_autocommit_is_off_before() -> None:
    def turn_off(**kwargs: object) -> None:
        transaction.set_autocommit(False)

    task_started.connect(turn_off)
    try:
        job = enqueue(tasks.effect, "a")
        run_due()
    finally:
        task_started.disconnect(turn_off)
    assert (fresh(job).status, Entry.objects.count()) == ("done", 1)


# -- lost transactions

LOST_SESSIONS = (
    "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
    " WHERE datname = current_database() AND pid <> pg_backend_pid() AND state = 'idle in transaction'"
)


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let lost jobs run again without a delay."""
    monkeypatch.setattr(outcomes, "DELAYS", (0.0, 0.0))


@pytest.mark.usefixtures("at_once")
@pytest.mark.promise("atomic-attempt-back")
def test_a_terminated_session_takes_no_attempt(caplog: pytest.LogCaptureFixture) -> None:
    with held(EFFECT) as job:
        sql(LOST_SESSIONS)
        tasks.release("a")
        until(lambda: fresh(job).status == "done")
    assert (fresh(job).attempts, fresh(job).errors, tasks.SEEN) == (1, [], [1, 1])
    assert Entry.objects.count() == 1
    assert f"job {job.pk} is requeued, because its transaction was lost" in caplog.text


@pytest.mark.usefixtures("at_once")
def test_the_timeouts_of_the_role_take_no_attempt_at_the_end_of_the_job(
    caplog: pytest.LogCaptureFixture, connect: Connect
) -> None:
    """Race: somebody else has the row of the job for a moment when an atomic task ends."""
    with held(tasks.hurry.bind("a")) as job:
        other = connect()
        other.execute("SELECT FROM pgqueue_job_live WHERE id = %s FOR UPDATE", [job.pk])
        tasks.gate("a").set()
        until(lambda: "its transaction was lost: canceling statement due to lock timeout" in caplog.text)
        other.rollback()
        until(lambda: fresh(job).status == "done")
    assert (fresh(job).attempts, fresh(job).errors, tasks.SEEN) == (1, [], [1, 1])
    assert Entry.objects.count() == 1


TWO_ANSWERS = InternalError("received 2 results from command 'COMMIT'"), psycopg.InternalError()
CRASHED = OperationalError("server conn crashed?"), psycopg.errors.ProtocolViolation()


@pytest.mark.parametrize(("error", "cause"), [TWO_ANSWERS, CRASHED], ids=["beside an answer", "pgbouncer"])
def test_the_error_of_a_pooler_takes_no_attempt(error: Exception, cause: Exception) -> None:
    """A pooler sends one when a session is ended, maybe beside the answer to the COMMIT. psycopg refuses two
    answers to one statement.
    """
    connection.ensure_connection()
    error.__cause__ = cause
    running: Any = SimpleNamespace(
        row=claimed(1), task=SimpleNamespace(on_lost="rerun"), reporting=None, is_finishing=True,
        session=outcomes.session_of("default"),
    )  # fmt: skip
    decide = outcomes.Outcomes("default", 1, Announcer())._lost_transaction
    assert decide(running, error) is None, "the session is still there"
    connection.close()
    connection.ensure_connection()
    outcome: Any = decide(running, error)
    assert outcome.kind == "release"


REFUSALS = {
    "a full disk": (tasks.meet_full_disk.bind(), "rerun", "done", 2),
    # Of the other limits of a server, a task may exceed one by itself.
    "another limit": (tasks.meet_full_disk.bind("configuration_limit_exceeded"), "rerun", "failed", 1),
    "a timeout of the task itself": (tasks.meet_full_disk.bind("lock_not_available"), "rerun", "failed", 1),
    "the task is the reason": (tasks.end_session.bind(), "rerun", "failed", outcomes.MOST_GIVEN_BACK + 1),
    "it must not run twice": (tasks.end_session.bind(), "fail", "failed", 1),
    "the session of another database": (tasks.end_session.bind("other"), "rerun", "failed", 1),
}


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("case", REFUSALS)
@pytest.mark.promise("atomic-attempt-back", case="a full disk")
@pytest.mark.promise("atomic-attempts-end", case="the task is the reason")
def test_which_errors_of_the_server_take_an_attempt(case: str, caplog: pytest.LogCaptureFixture) -> None:
    call, on_lost, status, runs = REFUSALS[case]
    job = enqueue(call)
    Job.objects.filter(pk=job.pk).update(on_lost=on_lost)
    run_due()
    assert (fresh(job).status, fresh(job).attempts) == (status, 1)
    assert [1] * runs == tasks.SEEN
    assert Entry.objects.count() == (status == "done")
    assert (f"job {job.pk} is requeued" in caplog.text) == (runs > 1)


def test_a_row_whose_transaction_was_lost_says_why_it_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outcomes, "DELAYS", (600.0, 600.0))
    job = enqueue(tasks.end_session)
    run_due()
    waiting = fresh(job)
    assert (waiting.status, waiting.attempts) == ("pending", 0)
    assert waiting.waiting_reason == outcomes.CONNECTION_LOST
    assert waiting.run_after > waiting.enqueued_at
