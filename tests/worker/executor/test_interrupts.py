"""Jobs are interrupted when their time is over, if it is not extended, and when they are cancelled."""

from __future__ import annotations

import asyncio
import ctypes
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from time import monotonic
from typing import Any

import psycopg
import pytest
from django.core.management import CommandError, call_command
from django.db import transaction
from django.db.transaction import TransactionManagementError
from django.test import Client
from django.urls import reverse

from django_pgqueue import TaskTimeout, cancel, current_job, enqueue, enqueue_many, extend, task
from django_pgqueue.jobs.claim import Claimed
from django_pgqueue.models import Job, JobStack
from django_pgqueue.postgres import session as sessions
from django_pgqueue.worker.executor import timeouts
from django_pgqueue.worker.executor.timeouts import Timeout, Timeouts
from django_pgqueue.worker.producer import connection as producer_connection, inbox
from tests.app import async_tasks, process_tasks, timing_tasks as timing, worker_tasks as tasks
from tests.app.models import Entry
from tests.app.worker_tasks import DEADLINE, held
from tests.support.jobs import sql
from tests.support.sessions import Connect
from tests.support.wording import shown
from tests.support.workers import done, fresh, over, run_due, until, working

pytestmark = pytest.mark.django_db(transaction=True)


TIMEOUTS: dict[int, Timeout] = {}


@pytest.fixture(autouse=True)
def _remember_timeouts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let tests see the timeouts of the jobs that run."""
    TIMEOUTS.clear()
    watch = Timeouts.watch

    def remember(self: Timeouts, timeout: Timeout) -> None:
        watch(self, timeout)
        TIMEOUTS[timeout.row.id] = timeout

    monkeypatch.setattr(Timeouts, "watch", remember)


def timeout_of(job: Job) -> Timeout:
    """Its timeout, once it runs."""
    return until(lambda: TIMEOUTS.get(job.pk))


ENDS = {  # status, result, attempts, errors
    "sync": (timing.waits_for.bind("a"), "failed", None, 1, 1),
    "async": (timing.awaits.bind("a"), "failed", None, 1, 1),
    "a timeout is an attempt": (timing.too_long_once.bind(), "done", "in time", 2, 1),
    "cleans up": (timing.cleans_up.bind("b"), "done", "b cleaned up", 1, 0),
    "cleans up, async": (timing.acleans_up.bind("c"), "done", "c cleaned up", 1, 0),
    "atomic": (timing.atomic_too_long.bind("x"), "failed", None, 1, 1),
    "extends itself": (timing.extends.bind(3), "done", [True] * 3, 1, 0),
    "neighbor": (tasks.hold.bind("n"), "done", "n", 1, 0),
}


@pytest.mark.promise("timeout", case="sync")
@pytest.mark.promise("timeout-is-an-attempt", case="a timeout is an attempt")
@pytest.mark.promise("extend", case="extends itself")
def test_a_task_that_runs_too_long_is_interrupted_and_its_neighbors_go_on() -> None:
    jobs = {name: enqueue(call) for name, (call, *_) in ENDS.items()}
    with working(threads=len(ENDS)):
        until(lambda: all(fresh(job).is_finished for name, job in jobs.items() if name != "neighbor"))
        assert fresh(jobs["neighbor"]).status == "running"
        tasks.release("n")
        done(enqueue(tasks.add, 1, 2), jobs["neighbor"])
    for name, (_, *expected) in ENDS.items():
        job = fresh(jobs[name])
        assert [job.status, job.result, job.attempts, len(job.errors)] == expected, name
        for error in job.errors:
            assert error["class"] == "django_pgqueue.exceptions.TaskTimeout"
            assert "longer than its timeout" in error["message"]
    assert not Entry.objects.exists(), "the work of an atomic task is rolled back"


def test_race_a_timeout_is_put_off_when_it_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator extends one when the worker is about to read the row. Others extend themselves when the
    worker has decided, before the exception is sent.
    """
    job, *others = (enqueue(task, "a") for task in (timing.waits_for, timing.awaits, timing.waits_for))
    seconds_left, raise_in_task = Timeouts._seconds_left, Timeout.raise_in_task
    extended = threading.Event()
    decided: set[int] = set()

    def look_afterwards(self: Timeouts, rows: list[Claimed]) -> dict[int, float]:
        assert not rows or extended.wait(tasks.DEADLINE)
        return seconds_left(self, rows)

    def extend_meanwhile(self: Timeout) -> None:
        self.put_off(3600)
        raise_in_task(self)
        decided.add(self.row.id)

    monkeypatch.setattr(Timeouts, "_seconds_left", look_afterwards)
    monkeypatch.setattr(Timeout, "raise_in_task", extend_meanwhile)
    with working(threads=3):
        tasks.runs("a")
        assert extend(job, 3600) == 1
        extended.set()
        until(lambda: decided == {each.pk for each in others})
        assert timeout_of(job).until - monotonic() > 1000
        tasks.release("a")
        over(job, *others)
    assert {(fresh(each).status, fresh(each).result) for each in (job, *others)} == {("done", "a")}


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
        sql("UPDATE pgqueue_job_live SET lease = lease + 1 WHERE id = %s", job.pk)
        tasks.gate("go").set()
        until(lambda: job.pk not in worker.producer._runner.running)
    assert tasks.SEEN == [True, False]
    assert fresh(job).status == "running"  # it belongs to another worker


def test_race_a_task_ends_while_its_exception_is_on_its_way() -> None:
    """The exception is sent after the thread has left the task's body, and is not raised anywhere."""
    job = enqueue(timing.waits_for_an_hour, "a")
    rest = enqueue_many(tasks.add.bind(number) for number in range(5)).ids
    with working(threads=1):
        timeout = timeout_of(job)
        tasks.runs("a")
        thread: Any = timeout._thread
        waits = Timeout._wait_while_it_is_sent.__code__
        with timeout._lock:  # like the thread that sends the exception
            tasks.gate("a").set()
            until(lambda: sys._current_frames()[thread].f_code is waits)
            timeouts._raise_in_thread(thread, ctypes.py_object(TaskTimeout))
        done(job, *rest)
    assert (fresh(job).status, fresh(job).result, fresh(job).errors) == ("done", "a", [])


@pytest.mark.promise("timeout-neighbors")
def test_a_job_that_goes_on_costs_its_process_and_its_neighbors_finish(settings: Any) -> None:
    settings.PGQUEUE = {"TIMEOUT_GRACE": 0.2}
    job = enqueue(timing.deaf, "a")
    neighbor = enqueue(tasks.hold, "n")
    with working(threads=2) as worker:
        assert tasks.gate("a heard").wait(tasks.DEADLINE)
        until(lambda: worker.producer.lifetime.stopping)
        waiting = enqueue(tasks.noop)
        tasks.gate("n").set()
        worker.thread.join(tasks.DEADLINE)
        assert not worker.thread.is_alive()
        assert worker.producer.lifetime.replaced
        tasks.gate("a").set()
    assert fresh(neighbor).status == "done"
    assert (fresh(job).status, fresh(job).attempts) == ("failed", 1)
    (error,) = fresh(job).errors
    assert error["class"] == "django_pgqueue.exceptions.TaskTimeout"
    assert "its process was replaced" in error["message"]
    assert functions(error["traceback"])[0] == "deaf", "its stack of that moment"
    assert fresh(waiting).status == "pending"


def test_a_job_that_ends_late_but_ends_is_what_it_says(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No server can be asked whether it was extended."""

    def refuse(alias: str) -> Any:
        raise psycopg.OperationalError("no server")

    monkeypatch.setattr(timeouts, "connect", refuse)
    settings.PGQUEUE = {"TIMEOUT_GRACE": 0.2}
    job = enqueue(timing.deaf, "a")
    neighbor = enqueue(tasks.hold, "n")
    with working(threads=2) as worker:
        until(lambda: worker.producer.lifetime.stopping)
        tasks.gate("a").set()
        until(lambda: fresh(job).is_finished)
        assert worker.thread.is_alive()
        tasks.gate("n").set()
        worker.thread.join(tasks.DEADLINE)
    assert [fresh(job).status, fresh(neighbor).status] == ["done", "done"]
    assert worker.producer.jobs.overdue == {}


def test_quick_jobs_leave_nothing_behind() -> None:
    enqueue_many(timing.quick.bind() for _ in range(50))
    producer = run_due()
    assert len(producer._runner.timeouts._watched) == 0
    assert Job.objects.filter(status="done").count() == 50
    assert producer.jobs._started_jobs.begun() == []


# -- cancelled while they run


@task
async def stubborn(name: str) -> None:
    tasks.gate(f"{name} runs").set()
    try:
        await asyncio.sleep(600)
    except asyncio.CancelledError as error:
        raise BaseExceptionGroup("stopped", [error]) from None


ASKED = {  # status, reason, errors
    "sync": (tasks.stoppable.bind("sync"), "cancelled", "stopped when asked", []),
    "async": (tasks.asleep.bind("async"), "cancelled", "asked to stop", []),
    "in a group": (stubborn.bind("in a group"), "cancelled", "asked to stop", []),
    "would be retried": (tasks.stops_by_error.bind("would be retried"), "cancelled", "", ["torn down"]),
    "goes on": (async_tasks.clean_up.bind("goes on"), "done", "", []),
    "does not look": (tasks.hold.bind("does not look"), "done", "", []),
}
OTHERS = {"other": tasks.asleep.bind("other"), "other sync": tasks.hold.bind("other sync")}


@pytest.mark.promise("cancel-async", case="async")
@pytest.mark.promise("cancel-no-retry", case="would be retried")
def test_jobs_that_are_cancelled_stop(settings: Any) -> None:
    settings.PGQUEUE = {"POLL_INTERVAL": 60}
    jobs = {name: enqueue(call) for name, (call, *_) in ASKED.items()}
    others = {name: enqueue(call) for name, call in OTHERS.items()}
    with working(threads=9):
        tasks.runs(*ASKED, *OTHERS)
        assert [cancel(job) for job in jobs.values()] == [1] * len(ASKED)
        assert cancel(jobs["does not look"]) == 0, "it was asked before"
        until(lambda: all(fresh(jobs[name]).is_finished for name in ASKED if name != "does not look"))
        assert {fresh(job).status for job in others.values()} == {"running"}
        tasks.release("does not look", "other sync")
        assert cancel(others["other"]) == 1
        over(*jobs.values(), *others.values())
    for name, (_, status, reason, errors) in ASKED.items():
        job = fresh(jobs[name])
        assert (job.status, job.waiting_reason) == (status, reason), name
        assert [error["message"] for error in job.errors] == errors, name
    assert [fresh(job).status for job in others.values()] == ["cancelled", "done"]
    assert fresh(jobs["goes on"]).result == "went on"
    assert Entry.objects.get().key == "cleaned up"
    assert {*tasks.SEEN} == {("sync", True), "async cancelled", "other cancelled"}


# --- What a running job does now: its stack, from whatever it runs in


@contextmanager
def waiting(*names: str, task: Any = process_tasks.waits) -> Iterator[Any]:
    """Yield jobs that run and wait, until the end of the block."""
    with working(threads=len(names)), held(*names, task=task) as jobs:
        yield jobs


def functions(stack: str) -> list[str]:
    """Return the functions of a stack, the outermost first."""
    return [line.rpartition(" in ")[2] for line in stack.splitlines() if line.startswith("  File ")]


def call_worker(job: Job) -> None:
    """Let the worker look at a job."""
    sql("SELECT pg_notify(_pgqueue_channel(), %s)", f"stack {job.pk}")


FRAMES: dict[Any, list[str]] = {
    process_tasks.waits: ["waits", "pieces", "innermost", "wait"],
    process_tasks.waits_with_timeout: ["waits_with_timeout", "pieces", "innermost", "wait"],
    process_tasks.waits_async: ["waits_async", "outer", "numbers", "sleep"],
    process_tasks.computes_async: ["computes_async", "innermost", "wait"],
}


def test_the_frames_of_the_task_and_no_others_without_values() -> None:
    with working():
        for task, first in FRAMES.items():
            with held(task.name, task=task) as job:
                until(lambda: first[-1] in functions(job.stack()))  # noqa: B023 - called at once
                stack = job.stack()
            assert functions(stack)[: len(first)] == first
            assert "innermost(name)" in stack or "await asyncio.sleep(0.05)" in stack  # the lines of the code
            assert "the value of" not in stack


@pytest.mark.usefixtures("forks_here")
def test_an_isolated_job_is_shown_from_its_process() -> None:
    job = enqueue(process_tasks.sleeps_long)
    sql("UPDATE pgqueue_job_live SET crash_count = 1 WHERE id = %s", job.pk)
    with working() as worker:
        until(worker.producer.jobs._started_jobs.begun)  # its process has said so
        stack = until(lambda: job.stack(DEADLINE))
        job.cancel()
    assert functions(stack) == ["sleeps_long"]


def test_a_worker_without_notifications_finds_what_is_requested(
    monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    settings.PGQUEUE = {**settings.PGQUEUE, "POLL_INTERVAL": 0.2}

    def connect_pooled(alias: str) -> sessions.Session:
        session = sessions.connect(alias)
        session.pooled = True
        return session

    monkeypatch.setattr(producer_connection, "connect", connect_pooled)
    with (
        working(threads=2),
        held("a", task=process_tasks.waits) as job,
        held("b", task=tasks.asleep) as cancelled,
    ):
        assert "innermost" in job.stack(DEADLINE)
        assert cancel(cancelled) == 1
        over(cancelled)
    assert fresh(cancelled).status == "cancelled"


def test_requests_that_cannot_be_answered_hold_up_no_others(connect: Connect) -> None:
    """One is of an earlier attempt. Race: one is locked, as someone asks again in a transaction that stays
    open. One of yesterday is deleted.
    """
    asker = connect()
    with waiting("a", "b") as (job, other):
        JobStack.objects.create(job_id=5, lease=1)
        sql("UPDATE pgqueue_stack SET requested_at = now() - interval '25 hours'")
        JobStack.objects.create(job_id=job.pk, lease=1)
        call_worker(job)
        assert other.stack(DEADLINE)  # so the worker has looked
        assert JobStack.objects.get(pk=job.pk).taken_at is None
        JobStack.objects.update(lease=fresh(job).lease or 0)
        asker.execute("SELECT FROM pgqueue_stack WHERE job_id = %s FOR UPDATE", (job.pk,))
        call_worker(job)
        assert "innermost" in other.stack(DEADLINE)
        asker.rollback()
        call_command("pgqueue", "stack", str(job.pk), stdout=(out := StringIO()))
    assert functions(out.getvalue())[:3] == ["waits", "pieces", "innermost"]
    assert set(JobStack.objects.values_list("pk", flat=True)) == {job.pk, other.pk}


def test_what_cannot_be_shown() -> None:
    job = enqueue(process_tasks.waits, "a")
    with pytest.raises(ValueError, match="does not run"):
        job.stack()
    with transaction.atomic(), pytest.raises(TransactionManagementError, match="outside of atomic"):
        job.stack()
    for number, words in ((job.pk, "does not run"), (1_000_000, r"There is no job 1000000\.")):
        with pytest.raises(CommandError, match=words):
            call_command("pgqueue", "stack", str(number))


def test_the_page_of_the_job_shows_it(admin_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a request that is one transaction, it is only requested."""
    with waiting("a") as job:
        page = reverse("admin:django_pgqueue_job_change", args=[job.pk])
        ask = reverse("admin:django_pgqueue_job_stack", args=[job.pk])
        assert "Show the stack" in admin_client.get(page).content.decode()
        with transaction.atomic():
            assert admin_client.post(ask)["Location"] == f"{page}#pgqueue-stack"
            assert JobStack.objects.get().taken_at is None
        until(lambda: JobStack.objects.get().taken_at)
        JobStack.objects.all().delete()
        admin_client.post(ask)
        seen = until(lambda: shown(admin_client.get(page).content).partition("the innermost call last.")[2])
        assert ", in waits return sum(pieces(name)) File " in seen
        monkeypatch.setattr(inbox, "write_stacks", lambda *_: None)  # it would answer again
        with pytest.raises(TimeoutError, match=r"has not answered within 0\.1 s"):
            job.stack(0.1)
        JobStack.objects.update(taken_at=None, lines="")
        assert "The worker has not answered yet." in shown(admin_client.get(page).content)
        JobStack.objects.update(lease=1)
        assert "The worker has not answered yet." not in shown(admin_client.get(page).content)
    assert "Show the stack" not in admin_client.get(page).content.decode()
    late = admin_client.post(ask, follow=True)
    assert "The job does not run any more." in late.content.decode()
