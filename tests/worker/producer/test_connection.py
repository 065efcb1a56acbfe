"""The worker loses its connection, claims or jobs: results arrive, no job is lost, and none runs twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest

from django_pgqueue import Concurrency, enqueue, enqueue_many, task
from django_pgqueue.models import Job, Worker
from django_pgqueue.postgres import session as session_module
from django_pgqueue.postgres.session import Session
from django_pgqueue.worker import sessions
from django_pgqueue.worker.producer import connection as producer_connection
from django_pgqueue.worker.producer.claimer import fill_policies
from tests.app import timing_tasks, worker_tasks as tasks
from tests.support.jobs import add, claim, sql
from tests.support.sessions import Connect, who_waits_for
from tests.support.waiting import DEADLINE, until
from tests.support.workers import RunningWorker, backend_of, done, fresh, make_producer, run_due, working

pytestmark = pytest.mark.django_db(transaction=True)


def cut(worker: RunningWorker) -> int:
    """End the producer's session on the server. Return its id."""
    pid = until(lambda: backend_of(worker.producer))
    sql("SELECT pg_terminate_backend(%s, 5000)", pid)
    return int(pid)


def cut_and_back(worker: RunningWorker) -> None:
    pid = cut(worker)
    until(lambda: backend_of(worker.producer) not in (None, pid), what="a new connection")


@pytest.fixture
def no_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., list[str]]]:
    """Call it to make the server unreachable for workers, and once more with False to bring it back.

    It gives a list of the tries to connect.
    """
    connect = session_module.connect

    def switch(gone: bool = True) -> list[str]:
        tries = []

        def refuse(alias: str) -> Session:
            tries.append(alias)
            raise psycopg.OperationalError("connection refused")

        monkeypatch.setattr(producer_connection, "connect", refuse if gone else connect)
        return tries

    yield switch
    switch(False)


# -- a session that is lost


@pytest.mark.promise("server-restart", "reconnects")
def test_the_result_of_a_job_that_ran_meanwhile_arrives_and_an_idle_worker_is_called_again(
    settings: Any,
) -> None:
    settings.PGQUEUE = {"POLL_INTERVAL": 60}
    with working() as worker, tasks.held("a") as job:
        cut_and_back(worker)
        tasks.release("a")
        done(job)
        cut_and_back(worker)
        done(enqueue(tasks.noop))
    assert (fresh(job).result, fresh(job).attempts) == ("a", 1)
    assert not Worker.objects.exists()


def test_race_an_atomic_job_was_committed_on_a_server_that_is_no_primary_any_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The primary says that the job runs here, which would be so as long as this worker lives."""
    monkeypatch.setattr(sessions, "REGISTER_EVERY", 0.1)
    with working(queues=["default"]) as worker, tasks.held("a"):
        cut_and_back(worker)
        job = enqueue(tasks.noop.using(queue_name="other"))
        mine = worker.producer.worker
        sql("SET session_replication_role = replica")  # no triggers
        sql(
            "UPDATE pgqueue_job_live SET status = 'running', attempts = 1, lease = 5, worker = %s"
            " WHERE id = %s", mine, job.pk,
        )  # fmt: skip
        sql("SET session_replication_role = origin")
        tasks.release("a")
        until(lambda: fresh(job).status == "pending")
    assert fresh(job).attempts == 0


@pytest.mark.promise("at-least-once")
def test_nothing_is_lost_and_nothing_runs_twice_however_often_it_is_cut() -> None:
    with working(threads=3) as worker:
        for round_ in range(3):
            enqueue_many(tasks.see.bind(f"{round_}-{number}") for number in range(60))
            cut_and_back(worker)
        until(lambda: Job.objects.filter(status="done").count() == 180)
    assert len(tasks.SEEN) == len(set(tasks.SEEN)) == 180


@pytest.mark.usefixtures("undeclared")
@pytest.mark.parametrize(("part", "answered"), [
    pytest.param("picked", True, id="claims go back"),
    pytest.param("_pgqueue_finish", True, id="reports do no harm"),
    pytest.param("_pgqueue_finish", False, id="a deadlock is tried again"),
    pytest.param("_pgqueue_fill_policy", False, id="jobs without a policy run later"),
])  # fmt: skip
def test_a_statement_whose_answer_is_lost_or_that_fails(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, part: str, answered: bool
) -> None:
    """The server commits it, and the connection breaks before its answer is here; or it is not done."""
    run = Session.run
    lost: list[Any] = []
    times = 3 if part == "_pgqueue_finish" and not answered else 1

    def lossy(self: Session, *statements: Any, durable: bool = False) -> Any:
        is_due = len(lost) < times and any(part in query for query, _ in statements)
        if is_due and not answered:
            lost.append(part)
            raise psycopg.errors.DeadlockDetected if times > 1 else psycopg.OperationalError("closed")
        answers = run(self, *statements, durable=durable)
        if is_due and answers[-1]:
            lost.append(part)
            raise psycopg.OperationalError("server closed the connection unexpectedly")
        return answers

    monkeypatch.setattr(Session, "run", lossy)
    enqueue_many(tasks.see.bind(number) for number in range(20))
    sql("SELECT pgqueue_enqueue('tests.app.worker_tasks.see', args => '[20]')")
    run_due()
    assert lost == [part] * times
    assert sorted(tasks.SEEN) == list(range(21))
    assert Job.objects.filter(status="done", attempts=1).count() == 21
    assert ("its outcome (done) was refused" in caplog.text) == (part == "_pgqueue_finish" and answered)


# -- a server that is away


def test_a_worker_that_starts_without_a_server_waits_for_it(no_server: Any) -> None:
    job = enqueue(tasks.noop)
    no_server()
    worker = RunningWorker(make_producer())
    until(lambda: worker.producer._waker._asleep, what="waiting for the server")
    no_server(False)
    done(job)
    worker.stop()


def test_jobs_that_end_while_the_server_is_away_do_not_hurry_the_next_try(
    no_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "FIRST_PAUSE", 1000.0)
    jobs = [enqueue(tasks.hold, key) for key in "abc"]
    producer = make_producer(threads=3)
    producer._connection.outage = sessions.Outage(longest=1000.0)
    worker = RunningWorker(producer)
    tasks.runs(*"abc")
    cut(worker)
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


@pytest.mark.parametrize("comes_back", [True, False], ids=["reported", "left to recovery"])
def test_a_worker_that_is_stopped_while_the_server_is_away_reports_within_the_grace_or_never(
    no_server: Any, caplog: pytest.LogCaptureFixture, comes_back: bool
) -> None:
    job = enqueue(tasks.hold, "a")
    worker = RunningWorker(make_producer())
    tasks.runs("a")
    no_server()
    cut(worker)
    if comes_back:
        until(lambda: worker.producer._connection.session is None)
        worker.producer.stop(60)
        tasks.gate("a").set()
        no_server(False)
        worker.stop(60)
        assert fresh(job).status == "done"
        assert not Worker.objects.exists()
    else:
        worker.stop(0)
        tasks.gate("a").set()
        assert "connection lost; 1 unreported jobs will run again" in caplog.text
        assert fresh(job).status == "running"
        assert [worker.pk for worker in Worker.objects.all()] == [fresh(job).worker]


# -- jobs that run here although their rows say otherwise: the server crashed, or the process was suspended

AS_BEFORE_THE_CLAIM = """
    UPDATE pgqueue_job_live SET status = 'pending', attempts = attempts - 1, worker = NULL, lease = NULL,
        started_at = NULL, last_attempted_at = NULL
    WHERE id = %s
"""
GIVEN_TO_ANOTHER = "UPDATE pgqueue_job_live SET worker = 1, lease = lease + 1 WHERE id = %s"
AFTER_A_FAILURE = AS_BEFORE_THE_CLAIM.replace("attempts = attempts - 1", "lost_in_a_row = 1")


@pytest.fixture
def quick(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.PGQUEUE = {"POLL_INTERVAL": 0.1}
    monkeypatch.setattr(sessions, "FIRST_PAUSE", 0.05)


@task(concurrency=Concurrency(1))
def one_at_a_time(name: str) -> str:
    tasks.SEEN.append(name)
    return tasks.hold.func(name)


@pytest.mark.usefixtures("quick")
def test_a_claim_that_the_server_has_lost_is_made_again_before_others(no_server: Any) -> None:
    first, second = enqueue(one_at_a_time, "a"), enqueue(one_at_a_time, "b")
    with working(threads=3) as worker:
        tasks.runs("a")
        no_server()
        cut(worker)
        until(lambda: backend_of(worker.producer) is None)
        sql(AS_BEFORE_THE_CLAIM, first.pk)
        no_server(False)
        until(lambda: fresh(first).status == "running")
        done(enqueue(tasks.noop))
        assert not tasks.gate("b runs").is_set()
        tasks.release("a", "b")
        done(second)
    assert tasks.SEEN == ["a", "b"]
    assert (fresh(first).status, fresh(first).attempts, fresh(second).attempts) == ("done", 1, 1)
    assert not worker.producer.lifetime.replaced


@pytest.mark.usefixtures("quick")
@pytest.mark.promise("lost-jobs-leave")
def test_a_process_whose_threads_all_run_lost_jobs_is_replaced(caplog: pytest.LogCaptureFixture) -> None:
    with working(threads=2) as worker, tasks.held("a") as first:
        sql(GIVEN_TO_ANOTHER, first.pk)
        until(lambda: f"job {first.pk} (tests.app.worker_tasks.hold) is lost" in caplog.text)
        done(enqueue(tasks.noop))
        assert not worker.producer.lifetime.stopping
        until(lambda: Worker.objects.get().lost == 1)
        with tasks.held("b") as second:
            sql(GIVEN_TO_ANOTHER, second.pk)
            until(lambda: not worker.thread.is_alive())
    assert worker.producer.lifetime.replaced
    assert [fresh(job).status for job in (first, second)] == ["running", "running"]


@pytest.mark.usefixtures("quick")
@pytest.mark.promise("lost-jobs-stop")
def test_a_lost_async_job_is_stopped_and_its_place_is_free() -> None:
    with working(threads=2) as worker, tasks.held("a", task=tasks.asleep) as job:
        sql(GIVEN_TO_ANOTHER, job.pk)
        until(lambda: tasks.SEEN == ["a cancelled"])
        until(lambda: not worker.producer.jobs.places)
        assert not worker.producer.lifetime.stopping
    assert fresh(job).status == "running"


@pytest.mark.usefixtures("quick")
@pytest.mark.promise("lost-jobs-leave")
def test_a_process_never_runs_a_job_twice_at_once() -> None:
    with working(threads=2) as worker, tasks.held("a") as job:
        tasks.gate("a runs").clear()
        sql(AFTER_A_FAILURE, job.pk)
        until(lambda: not worker.thread.is_alive())
        assert not tasks.gate("a runs").is_set()
    assert worker.producer.lifetime.replaced
    assert fresh(job).status == "retry"


@pytest.mark.usefixtures("undeclared")
@pytest.mark.parametrize(
    ("task", "policy", "commit"),
    [(tasks.noop, "rerun", "off"), (timing_tasks.dies_and_must_not_run_twice, "fail", "on")],
)
@pytest.mark.promise("on-lost-claim-on-disk")
def test_that_a_job_must_not_run_twice_is_on_disk_before_it_runs(
    connect: Connect, monkeypatch: pytest.MonkeyPatch, task: Any, policy: str, commit: str
) -> None:
    """Its claim did not know that, so it did not wait for the disk."""
    add(one := connect(autocommit=True), task_path=task.module_path)
    rows = claim(one)
    commits = []
    with closing(session_module.connect("default")) as own:
        run = own.run

        def run_and_look(*statements: Any, **options: Any) -> Any:
            *answers, [(level,)] = run(*statements, ("SHOW synchronous_commit", None), **options)
            commits.append(level)
            return answers

        monkeypatch.setattr(own, "run", run_and_look)
        (row,) = fill_policies(own, rows)
    assert (row.on_lost, Job.objects.get(pk=row.id).on_lost, commits) == (policy, policy, [commit])


def test_a_worker_that_was_forgotten_as_dead_registers_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "REGISTER_EVERY", 0.05)
    with working():
        worker = until(Worker.objects.first)
        Worker.objects.all().delete()
        until(lambda: Worker.objects.filter(pk=worker.pk).exists())


def test_race_a_worker_is_stopped_while_its_claim_is_on_the_way(connect: Connect) -> None:
    """The claim waits for a lock, the signal arrives, and the claim succeeds: none of its jobs is started."""
    holder, observer = connect(), connect(autocommit=True)
    worker = RunningWorker(make_producer(threads=2))
    done(enqueue(tasks.see, 1))
    tasks.SEEN.clear()
    # The claim now has ranges to read. It waits for this lock while there are jobs to claim.
    holder.execute("LOCK TABLE pgqueue_job_live IN SHARE ROW EXCLUSIVE MODE")
    ids = add(holder, 20, task_path="tests.app.worker_tasks.see", args="[1]")
    observer.execute("SELECT pg_notify(_pgqueue_channel(), 'wake default')")
    until(lambda: who_waits_for(holder, observer), what="the claim waits")
    worker.producer.stop(DEADLINE)
    holder.commit()
    worker.stop()
    assert tasks.SEEN == []
    assert set(Job.objects.filter(pk__in=ids).values_list("status", "attempts")) == {("pending", 0)}
