"""If somebody holds the lock on a running job's row, only that job has to wait."""

from __future__ import annotations

import pytest

from django_pgqueue import enqueue, enqueue_many
from django_pgqueue.models import Job
from django_pgqueue.postgres import session as session_module
from tests.app import worker_tasks as tasks
from tests.app.unique_tasks import hold_and_snooze
from tests.support.jobs import add
from tests.support.sessions import Connect
from tests.support.workers import fresh, until, working

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(session_module._SETTINGS, "lock_timeout", "200")


def test_a_locked_job_holds_up_nobody_else_and_is_reported_when_it_is_free(connect: Connect) -> None:
    holder = connect()
    job = enqueue(tasks.hold, "a")
    with working(threads=2):
        assert tasks.gate("a runs").wait(tasks.DEADLINE)
        holder.execute("SELECT FROM pgqueue_job_live WHERE id = %s FOR UPDATE", (job.pk,))
        tasks.gate("a").set()
        ids = enqueue_many(tasks.add.bind(number) for number in range(20)).ids
        until(lambda: Job.objects.filter(pk__in=ids, status="done").count() == 20)
        later = enqueue(tasks.noop)
        until(lambda: fresh(later).status == "done")
        assert fresh(job).status == "running"
        holder.rollback()
        until(lambda: fresh(job).status == "done")
    assert (fresh(job).result, fresh(job).attempts) == ("a", 1)


def test_a_locked_table_is_waited_for_over_the_same_connection(
    connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    holder = connect()
    jobs = [enqueue(tasks.hold, name) for name in "abcdef"]
    with working(threads=6) as worker:
        for name in "abcdef":
            assert tasks.gate(f"{name} runs").wait(tasks.DEADLINE)
        session = worker.producer._connection.session
        holder.execute("LOCK TABLE pgqueue_job_live IN ACCESS EXCLUSIVE MODE")
        for name in "abcdef":
            tasks.gate(name).set()
        until(lambda: "cannot be reported yet" in caplog.text)
        holder.rollback()
        until(lambda: all(fresh(job).status == "done" for job in jobs))
        assert worker.producer._connection.session is session
    assert [fresh(job).attempts for job in jobs] == [1] * 6


def test_what_is_still_locked_at_the_end_is_left_to_recovery(
    connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    holder = connect()
    job = enqueue(tasks.hold, "a")
    with working() as worker:
        assert tasks.gate("a runs").wait(tasks.DEADLINE)
        holder.execute("SELECT FROM pgqueue_job_live WHERE id = %s FOR UPDATE", (job.pk,))
        tasks.gate("a").set()
        worker.stop(grace=1)
    assert fresh(job).status == "running"
    assert "cannot be reported" in caplog.text


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_a_job_whose_twin_is_in_an_open_transaction_holds_up_nobody_else(
    connect: Connect, caplog: pytest.LogCaptureFixture, end: str
) -> None:
    other = connect()
    job = enqueue(hold_and_snooze.using(unique_key="k"), "a")
    with working(threads=2) as worker:
        assert tasks.gate("a runs").wait(tasks.DEADLINE)
        session = worker.producer._connection.session
        (twin,) = add(other, options='{"unique_key": "k"}', run_after="2060-01-01 UTC")
        tasks.gate("a").set()
        until(lambda: "cannot be reported yet" in caplog.text)
        ids = enqueue_many(tasks.add.bind(number) for number in range(20)).ids
        until(lambda: Job.objects.filter(pk__in=ids, status="done").count() == 20)
        assert fresh(job).status == "running"
        getattr(other, end)()
        until(lambda: fresh(job).status != "running")
        assert worker.producer._connection.session is session
    expected = ("cancelled", f"job {twin} with the same unique key waits in its place")
    if end == "rollback":
        expected = ("pending", "")
    assert (fresh(job).status, fresh(job).waiting_reason) == expected
