"""One-process mode and ``pgqueue run-here``: jobs on the main thread, kept alive by another thread."""

from __future__ import annotations

import json
import logging
import os
import pty
import select
import signal
import subprocess
import sys
import threading
from bdb import BdbQuit
from collections.abc import Callable, Iterator
from contextlib import suppress
from io import StringIO
from time import monotonic
from typing import Any

import psycopg
import pytest
from django.core.management import CommandError, call_command
from django.db import OperationalError, connection

from django_pgqueue import cancel, current_job, drain_worker, enqueue, pause, set_limit
from django_pgqueue.maintenance.recovery import recover_dead
from django_pgqueue.maintenance.schedules import synchronize
from django_pgqueue.models import Job, Worker
from django_pgqueue.models.changes import run_now
from django_pgqueue.postgres.session import connect
from django_pgqueue.worker import one_process
from django_pgqueue.worker.one_process import DebuggedWorker
from tests.app import debugged_tasks as tasks
from tests.support.commands import databases
from tests.support.waiting import DEADLINE, until
from tests.support.workers import fresh

pytestmark = pytest.mark.django_db(transaction=True)


def work(*arguments: str) -> str:
    out = StringIO()
    call_command("runqueueworker", "--one-process", *arguments, skip_checks=True, stdout=out)
    return out.getvalue()


@pytest.fixture(autouse=True)
def bodies() -> Iterator[dict[str, Callable[[], Any]]]:
    """What the task ``run_body`` calls, by name."""
    yield tasks.BODIES
    tasks.BODIES.clear()


def test_a_burst_runs_jobs_on_this_thread_and_keeps_the_connection(bodies: Any) -> None:
    ran: list[Any] = []
    connection.ensure_connection()
    before = connection.connection
    bodies["note"] = lambda: ran.append((threading.current_thread(), Worker.objects.get()))
    jobs = [enqueue(tasks.run_body, "note"), enqueue(tasks.run_async, "note")]
    other = enqueue(tasks.run_body.using(queue_name="other"), "note")
    text = work("--burst", "--queues", "default")
    assert [fresh(job).status for job in [*jobs, other]] == ["done", "done", "pending"]
    ((thread, worker),) = ran
    assert thread is threading.main_thread()
    assert (worker.slots, worker.queues, worker.holds_lock) == (1, ["default"], True)
    assert "Processes: only this one: one job at a time, without timeouts" in text
    assert connection.connection is before
    assert not Worker.objects.exists()
    assert all(thread.name != "pgqueue-keeper" for thread in threading.enumerate())


def test_a_job_at_a_breakpoint_is_not_taken_away(bodies: Any, settings: Any) -> None:
    """The main thread does nothing, and its heartbeats go on: the worker never counts as dead."""
    settings.PGQUEUE = {"HEARTBEAT": 0.1, "LEASE": 0.5}

    def stand_still() -> int:
        beats: set[str] = set()
        end = monotonic() + DEADLINE
        session = connect("default")  # another worker's
        while len(beats) < 12 and monotonic() < end:  # longer than a lease
            beats.add(session.value("SELECT heartbeat_at FROM pgqueue_worker"))
            assert recover_dead(session) == 0
        session.close()
        return len(beats)

    bodies["stop"] = stand_still
    job = enqueue(tasks.run_body, "stop")
    work("--burst")
    assert (fresh(job).status, fresh(job).result) == ("done", 12)


def test_timeouts_only_warn(bodies: Any, caplog: pytest.LogCaptureFixture) -> None:
    def take_long() -> None:
        end = monotonic() + 1.01
        until(lambda: monotonic() > end)

    bodies["long"] = take_long
    job = enqueue(tasks.short, "long")
    with caplog.at_level(logging.WARNING, "django_pgqueue"):
        work("--burst")
    assert fresh(job).status == "done"
    assert "longer than its timeout of 1 s" in caplog.text


@pytest.mark.parametrize("how", [KeyboardInterrupt, BdbQuit])
def test_an_interrupted_job_goes_back_and_the_command_ends(bodies: Any, how: type[BaseException]) -> None:
    def interrupt() -> None:
        raise how

    bodies["interrupt"] = interrupt
    job, second = enqueue(tasks.run_body, "interrupt"), enqueue(tasks.run_body, "second")
    work("--burst")
    job = fresh(job)
    assert (job.status, job.attempts - job.forgiven_attempts, job.errors) == ("pending", 0, [])
    assert fresh(second).attempts == 0


def test_the_connection_is_lost_while_a_job_runs_and_while_one_is_claimed(
    bodies: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(one_process, "LOOK_EVERY", 0.01)

    def end_session() -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")

    def end_session_quietly() -> str:
        with suppress(OperationalError):
            end_session()
        return "reported later"

    bodies.update(loses=end_session_quietly, x=lambda: 1)
    first, second = enqueue(tasks.run_body, "loses"), enqueue(tasks.run_body, "x")
    claim = DebuggedWorker._claim_next
    lost: list[int] = []

    def lose_the_answer(worker: DebuggedWorker) -> Any:
        row = claim(worker)
        if row is not None and row.id == second.pk and not lost:
            lost.append(row.id)
            raise psycopg.OperationalError("lost")
        return row

    monkeypatch.setattr(DebuggedWorker, "_claim_next", lose_the_answer)
    work("--burst")
    assert (fresh(first).status, fresh(first).result) == ("done", "reported later")
    assert (fresh(second).status, lost) == ("done", [second.pk])


@pytest.mark.parametrize("ctrl_c", [1, 2])
def test_ctrl_c_lets_the_job_finish_and_the_second_one_interrupts_it(bodies: Any, ctrl_c: int) -> None:
    def press() -> str:
        for _ in range(ctrl_c):
            signal.raise_signal(signal.SIGINT)
        return "finished"

    bodies["press"] = press
    job, second = enqueue(tasks.run_body, "press"), enqueue(tasks.run_body, "press")
    before = signal.getsignal(signal.SIGINT)
    work()
    assert signal.getsignal(signal.SIGINT) is before
    job = fresh(job)
    assert (job.status, job.result) == (("done", "finished") if ctrl_c == 1 else ("pending", None))
    assert fresh(second).attempts == 0


def test_it_fires_schedules_and_hears_cancel_and_drain(bodies: Any, settings: Any) -> None:
    def wait() -> str:
        cancel(current_job())
        assert current_job().wait_for_cancel(DEADLINE)
        drain_worker(Worker.objects.get())
        return "cancelled"

    bodies["wait"] = wait
    hourly = {"task": tasks.run_body.module_path, "every": 3600, "args": ["wait"]}
    settings.PGQUEUE = {"HEARTBEAT": 0.1, "SCHEDULES": {"hourly": hourly}}
    synchronize("default")
    with connection.cursor() as cursor:
        cursor.execute("UPDATE pgqueue_schedule SET next_run_at = clock_timestamp()")
    work()  # until it is drained
    assert Job.objects.filter(task_path=tasks.run_body.module_path).count() == 1


# -- a debugger


def test_a_breakpoint_in_a_terminal(transactional_db: None) -> None:
    job = enqueue(tasks.stop_at_breakpoint, 41)
    ours, theirs = pty.openpty()
    environment = {
        **os.environ, "DJANGO_SETTINGS_MODULE": "tests.processes.settings",
        "TEST_DATABASES": json.dumps(databases()), "TEST_PGQUEUE": "{}", "TERM": "dumb", "PYTHON_COLORS": "0",
        "PYTHON_BASIC_REPL": "1",
    }  # fmt: skip
    command = ["-m", "django", "runqueueworker", "--one-process", "--burst", "--skip-checks"]
    with subprocess.Popen(
        [sys.executable, *command], stdin=theirs, stdout=theirs, stderr=theirs, env=environment
    ) as process:
        os.close(theirs)
        try:
            said = talk(ours, "(Pdb)", "p value\n") + talk(ours, "(Pdb)", "!value = 99\n")
            assert fresh(job).status == "running"
            said += talk(ours, "(Pdb)", "c\n")
            assert process.wait(DEADLINE) == 0
        finally:
            process.kill()
            os.close(ours)
    assert "41" in said
    assert (fresh(job).status, fresh(job).result) == ("done", 99)


def talk(terminal: int, prompt: str, answer: str) -> str:
    """Wait for a prompt, and answer it. Return what was said until then."""
    said = ""
    while prompt not in said:
        ready, _, _ = select.select([terminal], [], [], DEADLINE)
        assert ready, f"no prompt after:\n{said}"
        said += os.read(terminal, 4096).decode()
    os.write(terminal, answer.encode())
    return said


# -- pgqueue run-here


def run(job: Job, *arguments: str) -> str:
    out = StringIO()
    call_command("pgqueue", "run-here", str(job.pk), *arguments, stdout=out)
    return out.getvalue()


def test_run_one_job_that_waits_for_later(bodies: Any) -> None:
    bodies["x"] = lambda: {"ran": threading.current_thread() is threading.main_thread()}
    first, job = enqueue(tasks.run_body, "x"), enqueue(tasks.later, "x")
    pause(queue="default")
    assert "done in" in run(job)
    assert (fresh(job).status, fresh(job).result) == ("done", {"ran": True})
    assert fresh(first).attempts == 0
    assert not Worker.objects.exists()


def test_run_a_job_that_fails_and_debug_it(bodies: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    frames: list[Any] = []
    monkeypatch.setattr("pdb.post_mortem", frames.append)

    def fail() -> None:
        raise ValueError("no such order")

    bodies["x"] = fail
    job, out = enqueue(tasks.run_body, "x"), StringIO()
    with pytest.raises(CommandError, match="it will be tried again"):
        call_command("pgqueue", "run-here", str(job.pk), "--pdb", stdout=out)
    assert "ValueError: no such order" in out.getvalue()
    assert (fresh(job).status, len(fresh(job).errors)) == ("retry", 1)
    (traceback,) = frames
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    assert traceback.tb_frame.f_code.co_name == "fail"
    run_now(fresh(job))
    bodies["x"] = lambda: 1
    assert "attempt 2: done" in run(job)


def test_ctrl_c_gives_the_job_back_that_runs_here(bodies: Any) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    bodies["x"] = interrupt
    job = enqueue(tasks.run_body, "x")
    with pytest.raises(CommandError, match=r"attempt 1: it waits again \(it was interrupted\)\.") as raised:
        run(job)
    assert raised.value.returncode == 130
    job = fresh(job)
    assert (job.status, job.attempts - job.forgiven_attempts) == ("pending", 0)


def test_jobs_that_cannot_be_run(bodies: Any) -> None:
    bodies["x"] = lambda: run_again()

    def run_again() -> None:
        with pytest.raises(CommandError, match="a worker runs it now"):
            run(job)

    job = enqueue(tasks.run_body, "x")
    run(job)
    with pytest.raises(CommandError, match=rf"it is finished \(done\)\. First: retry\({job.pk}, done=True\)"):
        run(job)
    with pytest.raises(CommandError, match=f"There is no job {job.pk + 1000} in the database 'default'"):
        run(Job(pk=job.pk + 1000))


@pytest.mark.django_db(transaction=True, databases="__all__")
def test_another_database(bodies: Any) -> None:
    bodies["x"] = lambda: 1
    elsewhere = tasks.run_body.using(database="other")
    out = StringIO()
    public = f"other:{enqueue(elsewhere, 'x').pk}"
    call_command("pgqueue", "run-here", public, stdout=out)
    assert "done in" in out.getvalue()
    with pytest.raises(CommandError, match=rf"retry\('{public}', done=True\)"):
        call_command("pgqueue", "run-here", public)
    with pytest.raises(CommandError, match="'gone' is not in DATABASES"):
        call_command("pgqueue", "run-here", "gone:1")
    with pytest.raises(CommandError, match="'first' is not the id of a job"):
        call_command("pgqueue", "run-here", "first")
    first, second, third = enqueue(elsewhere, "x"), enqueue(elsewhere, "x"), enqueue(tasks.run_body, "x")
    assert "done in" in run(first, "--database", "other")
    work("--burst", "--database", "other")
    found = Job.objects.using("other").order_by("pk").values_list("pk", "status")
    assert list(found)[1:] == [(first.pk, "done"), (second.pk, "done")]
    assert fresh(third).attempts == 0


def test_a_job_without_room_or_that_somebody_has_locked_is_not_run(bodies: Any, connect: Any) -> None:
    full = tasks.run_body.using(queue_name="full")
    bodies["x"], job, later = lambda: 1, enqueue(full, "x"), enqueue(tasks.later, "x")
    set_limit(queue="full", concurrency=1)

    def run_beside() -> None:
        with pytest.raises(CommandError, match="has reached a limit"):
            run(job)

    bodies["beside"] = run_beside
    assert "done" in run(enqueue(full, "beside"))
    # Race: another worker claims it at the same moment.
    with connect() as other:
        other.execute("SELECT FROM pgqueue_job_live WHERE id = %s FOR UPDATE", [job.pk])
        with pytest.raises(CommandError, match="another transaction has locked it"):
            run(job)
    assert "done" in run(job)
    assert fresh(later).attempts == 0


@pytest.mark.parametrize("how", ["worker", "run"])
def test_progress_is_seen_while_the_job_runs(bodies: Any, how: str) -> None:
    def report() -> int:
        current_job().set_progress(1, 3)
        session = connect("default")
        until(lambda: session.rows("SELECT 1 FROM pgqueue_progress"))
        session.close()
        return 5

    bodies["report"] = report
    job = enqueue(tasks.run_body, "report")
    if how == "worker":
        work("--burst")
    else:
        call_command("pgqueue", "run-here", str(job.pk), stdout=StringIO())
    assert (fresh(job).status, fresh(job).result, fresh(job).marks) == ("done", 5, 8)
