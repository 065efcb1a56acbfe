"""Timeouts inside a worker process: TaskTimeout is raised only in the task, and can be postponed in time."""

from __future__ import annotations

import ctypes
import sys
import threading
from time import monotonic
from typing import Any

import psycopg
import pytest
from django.db import connection

from django_pgqueue import TaskTimeout, current_job, enqueue, enqueue_many, extend, task
from django_pgqueue.jobs.claim import Claimed
from django_pgqueue.models import Job
from django_pgqueue.worker.executor import timeouts
from django_pgqueue.worker.executor.timeouts import Timeout, Timeouts
from tests.app import timing_tasks as timing
from tests.app import worker_tasks as tasks
from tests.app.models import Entry
from tests.support.workers import fresh, run_due, until, working

pytestmark = pytest.mark.django_db(transaction=True)


TIMEOUTS: dict[int, Timeout] = {}


@pytest.fixture(autouse=True)
def _remember_timeouts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let tests see the timeouts of the jobs that run."""
    TIMEOUTS.clear()
    begin = Timeouts.begin

    def remember(self: Timeouts, timeout: Timeout) -> None:
        begin(self, timeout)
        TIMEOUTS[timeout.row.id] = timeout

    monkeypatch.setattr(Timeouts, "begin", remember)


def timeout_of(job: Job) -> Timeout:
    """Its timeout, once it runs."""
    return until(lambda: TIMEOUTS.get(job.pk))


def error_class(job: Any) -> str:
    name: str = fresh(job).errors[-1]["class"]
    return name


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.promise("timeout")
def test_a_task_that_runs_too_long_fails_and_its_neighbours_go_on(is_async: bool) -> None:
    job = enqueue(timing.atoo_long, "a") if is_async else enqueue(timing.too_long, "a")
    neighbour = enqueue(tasks.hold, "n")
    with working(threads=2):
        until(lambda: fresh(job).is_finished)
        tasks.gate("n").set()
        until(lambda: fresh(neighbour).status == "done")
        after = enqueue(tasks.add, 1, 2)
        until(lambda: fresh(after).status == "done")
    assert (fresh(job).status, fresh(job).attempts) == ("failed", 1)
    assert error_class(job) == "django_pgqueue.exceptions.TaskTimeout"
    assert "longer than its timeout" in fresh(job).errors[0]["message"]


@pytest.mark.promise("timeout-is-an-attempt")
def test_a_timeout_is_an_attempt_that_may_be_retried() -> None:
    job = enqueue(timing.too_long_once)
    with working():
        until(lambda: fresh(job).is_finished)
    assert (fresh(job).status, fresh(job).result, fresh(job).attempts) == ("done", "in time", 2)
    assert error_class(job) == "django_pgqueue.exceptions.TaskTimeout"


def test_a_task_may_clean_up_and_end() -> None:
    jobs = [enqueue(timing.cleans_up, "a"), enqueue(timing.acleans_up, "b")]
    with working(threads=2):
        until(lambda: all(fresh(job).is_finished for job in jobs))
    assert [(fresh(job).status, fresh(job).result) for job in jobs] == [
        ("done", "a cleaned up"),
        ("done", "b cleaned up"),
    ]


def test_the_work_of_an_atomic_task_is_rolled_back() -> None:
    job = enqueue(timing.atomic_too_long, "x")
    with working():
        until(lambda: fresh(job).is_finished)
    assert fresh(job).status == "failed"
    assert error_class(job) == "django_pgqueue.exceptions.TaskTimeout"
    assert not Entry.objects.exists()


@pytest.mark.promise("extend")
def test_a_task_that_extends_itself_runs_on() -> None:
    job = enqueue(timing.extends, 4)
    with working():
        until(lambda: fresh(job).is_finished)
    assert (fresh(job).status, fresh(job).result) == ("done", [True] * 4)


def test_an_operator_may_extend_what_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    job = enqueue(timing.waits_for, "a")
    extended = threading.Event()
    seconds_left = Timeouts._seconds_left

    def look_afterwards(self: Timeouts, rows: list[Claimed]) -> dict[int, float]:
        assert not rows or extended.wait(tasks.DEADLINE)
        return seconds_left(self, rows)

    monkeypatch.setattr(Timeouts, "_seconds_left", look_afterwards)
    with working():
        assert tasks.gate("a runs").wait(tasks.DEADLINE)
        assert extend(job, 3600) == 1
        extended.set()
        # The worker reads the row when the deadline that it knows is reached.
        until(lambda: timeout_of(job).until - monotonic() > 1000)
        tasks.gate("a").set()
        until(lambda: fresh(job).is_finished)
    assert fresh(job).status == "done"


@task(timeout=3600)
def extends_at_the_gate() -> None:
    """Extends itself, and once more when the test says so."""
    tasks.SEEN.append(current_job().extend(3600))
    tasks.gate("extended").set()
    assert tasks.gate("go").wait(tasks.DEADLINE)
    tasks.SEEN.append(current_job().extend(3600))


@pytest.mark.promise("extend-tells")
def test_extending_says_whether_the_lease_is_still_held() -> None:
    job = enqueue(extends_at_the_gate)
    with working() as worker:
        assert tasks.gate("extended").wait(tasks.DEADLINE)
        with connection.cursor() as cursor:
            cursor.execute("UPDATE pgqueue_job_live SET lease = lease + 1 WHERE id = %s", [job.pk])
        tasks.gate("go").set()
        until(lambda: job.pk not in worker.producer._runner.running)
    assert tasks.SEEN == [True, False]
    assert fresh(job).status == "running"  # it belongs to another worker


def test_race_a_task_ends_while_its_exception_is_on_its_way() -> None:
    """The exception is sent after the thread has left the task's body, and is not raised anywhere."""
    job = enqueue(timing.waits_for_an_hour, "a")
    rest = enqueue_many(tasks.add.bind(number) for number in range(50)).ids
    with working(threads=1):
        timeout = timeout_of(job)
        assert tasks.gate("a runs").wait(tasks.DEADLINE)
        thread = timeout._thread
        assert thread is not None
        with timeout._lock:  # like the thread that sends the exception
            tasks.gate("a").set()
            until(lambda: sys._current_frames()[thread].f_code is Timeout._leave.__code__)
            timeouts._raise_in_thread(thread, ctypes.py_object(TaskTimeout))
        until(lambda: fresh(job).is_finished)
        until(lambda: Job.objects.filter(pk__in=rest, status="done").count() == 50)
    assert (fresh(job).status, fresh(job).result, fresh(job).errors) == ("done", "a", [])


@pytest.mark.parametrize("is_async", [False, True])
def test_race_a_task_extends_itself_when_the_worker_has_decided(
    monkeypatch: pytest.MonkeyPatch, is_async: bool
) -> None:
    """The row was read and the deadline is reached, but the task extends it before the exception is sent."""
    job = enqueue(timing.awaits, "a") if is_async else enqueue(timing.waits_for, "a")
    raise_in_task = Timeout.raise_in_task
    decided = threading.Event()

    def extend_meanwhile(self: Timeout) -> None:
        self.put_off(3600)
        raise_in_task(self)
        decided.set()

    monkeypatch.setattr(Timeout, "raise_in_task", extend_meanwhile)
    with working():
        assert decided.wait(tasks.DEADLINE)
        tasks.gate("a").set()
        until(lambda: fresh(job).is_finished)
    assert (fresh(job).status, fresh(job).result) == ("done", "a")


@pytest.mark.promise("timeout-neighbors")
def test_a_job_that_goes_on_costs_its_process_and_its_neighbours_finish(settings: Any) -> None:
    settings.PGQUEUE = {"TIMEOUT_GRACE": 0.2}
    job = enqueue(timing.deaf, "a")
    neighbour = enqueue(tasks.hold, "n")
    with working(threads=2) as worker:
        assert tasks.gate("a heard").wait(tasks.DEADLINE)
        until(lambda: worker.producer.lifetime.stopping)
        waiting = enqueue(tasks.noop)
        tasks.gate("n").set()
        worker.thread.join(tasks.DEADLINE)
        assert not worker.thread.is_alive()
        assert worker.producer.lifetime.replaced
        tasks.gate("a").set()
    assert fresh(neighbour).status == "done"
    assert (fresh(job).status, fresh(job).attempts) == ("failed", 1)
    assert error_class(job) == "django_pgqueue.exceptions.TaskTimeout"
    assert "its process was replaced" in fresh(job).errors[0]["message"]
    assert fresh(waiting).status == "pending"


def test_a_job_that_ends_late_but_ends_is_what_it_says(settings: Any) -> None:
    settings.PGQUEUE = {"TIMEOUT_GRACE": 0.2}
    job = enqueue(timing.deaf, "a")
    neighbour = enqueue(tasks.hold, "n")
    with working(threads=2) as worker:
        until(lambda: worker.producer.lifetime.stopping)
        tasks.gate("a").set()
        until(lambda: fresh(job).is_finished)
        assert worker.thread.is_alive()
        tasks.gate("n").set()
        worker.thread.join(tasks.DEADLINE)
    assert [fresh(job).status, fresh(neighbour).status] == ["done", "done"]
    assert worker.producer.jobs.overdue == {}


def test_quick_jobs_leave_nothing_behind() -> None:
    enqueue_many(timing.quick.bind() for _ in range(2_000))
    producer = run_due()
    assert len(producer._runner.timeouts._watched) == 0
    assert Job.objects.filter(status="done").count() == 2_000
    assert producer.jobs._started_jobs.begun() == []


def test_what_the_server_cannot_be_asked_is_decided_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(alias: str) -> Any:
        raise psycopg.OperationalError("no server")

    monkeypatch.setattr(timeouts, "connect", refuse)
    job = enqueue(timing.too_long, "a")
    with working():
        until(lambda: fresh(job).is_finished)
    assert error_class(job) == "django_pgqueue.exceptions.TaskTimeout"
