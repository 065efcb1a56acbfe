"""One-process mode and ``pgqueue run-here``: jobs on the main thread, kept alive by another thread. And the
names for ``manage.py shell``, which run jobs there, too.
"""

from __future__ import annotations

import os
import pty
import re
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
from django.test import override_settings

from django_pgqueue import cancel, current_job, drain_worker, enqueue, pause, set_limit
from django_pgqueue.maintenance.recovery import recover_dead
from django_pgqueue.maintenance.schedules import synchronize
from django_pgqueue.models import Job, Worker
from django_pgqueue.models.changes import run_now
from django_pgqueue.postgres.session import connect
from django_pgqueue.worker import one_process
from django_pgqueue.worker.one_process import DebuggedWorker
from tests.app import inline_tasks as tasks, secret_tasks
from tests.support.commands import django_environment
from tests.support.factories import JobFactory
from tests.support.jobs import sql
from tests.support.waiting import DEADLINE, until
from tests.support.workers import fresh, run_due

pytestmark = pytest.mark.django_db(transaction=True)

Body = Callable[[], Any]
Add = Callable[..., Job]


def work(*arguments: str) -> str:
    out = StringIO()
    call_command("runqueueworker", "--one-process", *arguments, skip_checks=True, stdout=out)
    return out.getvalue()


def run_here(job: Job | str, *arguments: str) -> str:
    out = StringIO()
    call_command("pgqueue", "run-here", str(getattr(job, "pk", job)), *arguments, stdout=out)
    return out.getvalue()


@pytest.fixture
def add() -> Iterator[Add]:
    """Enqueue a job that calls a function of the test: ``run_body``, or another task that calls it."""

    def add(body: Body = lambda: 1, task: Any = tasks.run_body) -> Job:
        name = str(len(tasks.BODIES))
        tasks.BODIES[name] = body
        return enqueue(task, name)

    yield add
    tasks.BODIES.clear()


def raising(error: type[BaseException] | BaseException) -> Body:
    def body() -> None:
        raise error

    return body


FAIL = raising(ValueError("no such order"))


def test_a_burst_runs_jobs_on_this_thread_and_keeps_the_connection(add: Add) -> None:
    ran: list[Any] = []
    connection.ensure_connection()
    before = connection.connection
    jobs = [
        add(lambda: ran.append((threading.current_thread(), Worker.objects.get()))),
        add(task=tasks.run_async),
        add(task=tasks.run_body.using(queue_name="other")),
    ]
    text = work("--burst", "--queues", "default")
    assert [fresh(job).status for job in jobs] == ["done", "done", "pending"]
    ((thread, worker),) = ran
    assert thread is threading.main_thread()
    assert (worker.slots, worker.queues, worker.holds_lock) == (1, ["default"], True)
    assert "Processes: only this one: one job at a time, without timeouts" in text
    assert connection.connection is before
    assert not Worker.objects.exists()
    assert all(thread.name != "pgqueue-keeper" for thread in threading.enumerate())


def test_a_job_at_a_breakpoint_is_not_taken_away_and_its_timeout_only_warns(
    add: Add, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The main thread does nothing, and its heartbeats go on: the worker never counts as dead."""
    settings.PGQUEUE = {"HEARTBEAT": 0.1, "LEASE": 0.5}

    def stand_still() -> int:
        beats: set[str] = set()
        began, session = monotonic(), connect("default")  # another worker's
        while monotonic() < began + 1.01:  # longer than a lease, and than the timeout
            beats.add(session.value("SELECT heartbeat_at FROM pgqueue_worker"))
            assert recover_dead(session) == 0
        session.close()
        return len(beats)

    job = add(stand_still, tasks.short)
    work("--burst")
    result: Any = fresh(job).result
    assert (fresh(job).status, result > 5) == ("done", True)
    assert "longer than its timeout of 1 s" in caplog.text


def press(times: int) -> Body:
    """Press Ctrl-C."""

    def body() -> str:
        for _ in range(times):
            signal.raise_signal(signal.SIGINT)
        return "finished"

    return body


INTERRUPTED: Any = ("pending", None, 0, [])


@pytest.mark.parametrize(
    ("body", "arguments", "end"),
    [
        (raising(KeyboardInterrupt), ["--burst"], INTERRUPTED),
        (raising(BdbQuit), ["--burst"], INTERRUPTED),
        (press(2), [], INTERRUPTED),
        (press(1), [], ("done", "finished", 1, [])),
    ],
    ids=["interrupted", "debugger ended", "Ctrl-C twice interrupts", "Ctrl-C once lets it finish"],
)
def test_an_interrupted_job_goes_back_and_the_command_ends(
    add: Add, body: Body, arguments: list[str], end: Any
) -> None:
    job, second = add(body), add()
    before = signal.getsignal(signal.SIGINT)
    work(*arguments)
    assert signal.getsignal(signal.SIGINT) is before
    job = fresh(job)
    assert (job.status, job.result, job.attempts - job.forgiven_attempts, job.errors) == end
    assert fresh(second).attempts == 0


def test_the_connection_is_lost_while_a_job_runs_and_while_one_is_claimed(
    add: Add, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(one_process, "LOOK_EVERY", 0.01)

    def end_session() -> str:
        with suppress(OperationalError):
            sql("SELECT pg_terminate_backend(pg_backend_pid())")
        return "reported later"

    first, second = add(end_session), add()
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


def test_it_fires_schedules_and_hears_cancel_and_drain(add: Add, settings: Any) -> None:
    def wait() -> None:
        cancel(current_job())
        assert current_job().wait_for_cancel(DEADLINE)
        drain_worker(Worker.objects.get())

    tasks.BODIES["wait"] = wait
    hourly = {"task": tasks.run_body.module_path, "every": 3600, "args": ["wait"]}
    settings.PGQUEUE = {"HEARTBEAT": 0.1, "SCHEDULES": {"hourly": hourly}}
    synchronize("default")
    sql("UPDATE pgqueue_schedule SET next_run_at = clock_timestamp()")
    work()  # until it is drained
    assert Job.objects.filter(task_path=tasks.run_body.module_path).count() == 1


def test_progress_is_seen_while_the_job_runs(add: Add) -> None:
    def report() -> int:
        current_job().set_progress(1, 3)
        session = connect("default")
        until(lambda: session.rows("SELECT 1 FROM pgqueue_progress"))
        session.close()
        return 5

    job = add(report)
    run_here(job)
    assert (fresh(job).status, fresh(job).result, fresh(job).marks) == ("done", 5, 8)


def test_a_breakpoint_in_a_terminal() -> None:
    job = enqueue(tasks.stop_at_breakpoint, 41)
    ours, theirs = pty.openpty()
    plain = {"TERM": "dumb", "PYTHON_COLORS": "0", "PYTHON_BASIC_REPL": "1"}
    command = ["-m", "django", "runqueueworker", "--one-process", "--burst", "--skip-checks"]
    with subprocess.Popen(
        [sys.executable, *command],
        stdin=theirs, stdout=theirs, stderr=theirs, env={**django_environment(), **plain},
    ) as process:  # fmt: skip
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
    said = b""  # a read may end within a character
    while prompt.encode() not in said:
        ready, _, _ = select.select([terminal], [], [], 3 * DEADLINE)  # a process starts, on a busy machine
        assert ready, f"no prompt after:\n{said.decode(errors='replace')}"
        said += os.read(terminal, 4096)
    os.write(terminal, answer.encode())
    return said.decode()


# -- pgqueue run-here


def test_run_one_job_that_waits_for_later(add: Add) -> None:
    first = add()
    job = add(lambda: {"ran": threading.current_thread() is threading.main_thread()}, tasks.later)
    pause(queue="default")
    assert "done in" in run_here(job)
    assert (fresh(job).status, fresh(job).result) == ("done", {"ran": True})
    assert fresh(first).attempts == 0
    assert not Worker.objects.exists()


def test_run_a_job_that_fails_and_debug_it(add: Add, monkeypatch: pytest.MonkeyPatch) -> None:
    frames: list[Any] = []
    monkeypatch.setattr("pdb.post_mortem", frames.append)
    job, out = add(FAIL), StringIO()
    with pytest.raises(CommandError, match="it will be tried again"):
        call_command("pgqueue", "run-here", str(job.pk), "--pdb", stdout=out)
    assert "ValueError: no such order" in out.getvalue()
    assert (fresh(job).status, len(fresh(job).errors)) == ("retry", 1)
    (traceback,) = frames
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    assert traceback.tb_frame.f_code.co_qualname == "raising.<locals>.body"
    run_now(fresh(job))
    tasks.BODIES.update(dict.fromkeys(tasks.BODIES, lambda: 1))
    assert "attempt 2: done" in run_here(job)


def test_ctrl_c_gives_the_job_back(add: Add) -> None:
    job = add(raising(KeyboardInterrupt))
    with pytest.raises(CommandError, match=r"attempt 1: it waits again \(it was interrupted\)\.") as raised:
        run_here(job)
    assert raised.value.returncode == 130
    job = fresh(job)
    assert (job.status, job.attempts - job.forgiven_attempts) == ("pending", 0)


def refused(words: str, *arguments: Any) -> None:
    with pytest.raises(CommandError, match=words):
        run_here(*arguments)


def test_jobs_that_cannot_be_run(add: Add, connect: Any) -> None:
    job: Job = add(lambda: refused("a worker runs it now", job))
    # Race: another worker claims it at the same moment.
    with connect() as other:
        other.execute("SELECT FROM pgqueue_job_live WHERE id = %s FOR UPDATE", [job.pk])
        refused("another transaction has locked it", job)
    assert "done" in run_here(job)
    refused(rf"it is finished \(done\)\. First: retry\({job.pk}, done=True\)", job)
    refused(f"There is no job {job.pk + 1000} in the database 'default'", str(job.pk + 1000))
    refused("'gone' is not in DATABASES", "gone:1")
    refused("'first' is not the id of a job", "first")
    full = tasks.run_body.using(queue_name="full")
    set_limit(queue="full", concurrency=1)
    waits = add(task=full)
    assert "done" in run_here(add(lambda: refused("has reached a limit", waits), full))
    assert "done" in run_here(waits)


@pytest.mark.django_db(transaction=True, databases="__all__")
def test_another_database(add: Add) -> None:
    first, second, third = (add(task=tasks.run_body.using(database="other")) for _ in range(3))
    here = add()
    assert "done in" in run_here(f"other:{first.pk}")
    refused(rf"retry\('other:{first.pk}', done=True\)", f"other:{first.pk}")
    assert "done in" in run_here(second, "--database", "other")
    work("--burst", "--database", "other")
    found = Job.objects.using("other").values_list("pk", "status")
    assert set(found) == {(job.pk, "done") for job in (first, second, third)}
    assert fresh(here).attempts == 0


# --- The names for manage.py shell, used as a developer types them


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs a line in the shell, and returns what it prints."""

    def do(line: str) -> str:
        capsys.readouterr()
        call_command(
            "shell", command=f"from django_pgqueue.shell import *\n{line}", verbosity=0, no_imports=True
        )
        return capsys.readouterr().out.strip()

    return do


@pytest.mark.promise("redaction-everywhere")
def test_what_the_shell_and_the_command_print_is_redacted(
    shell: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    enqueue(secret_tasks.sign_in, "nobody", "hunter2", api_key="k-1")
    run_due()
    assert "sign_in(*['nobody', '[redacted]'], **{'api_key': '[redacted]'})" in shell("failure()")
    with override_settings(PGQUEUE={"REDACT": [r"re:\d{4}-\d{4}"]}):
        assert "card [redacted]-[redacted] of nobody" in shell("failure()")
    job = enqueue(secret_tasks.sign_in, "ann", "hunter2")
    call_command("pgqueue", "run-here", str(job.pk))
    text = capsys.readouterr().out
    assert 'Result: {"user": "ann", "accessToken": "[redacted]"}' in text
    assert fresh(job).result == {"user": "ann", "accessToken": "hunter2-token"}


def test_jobs_and_failures(shell: Any, add: Add) -> None:
    assert shell("failure()") == "No job has failed."
    good, bad = add(lambda: 42), add(FAIL, tasks.short.using(queue_name="mail"))
    run_due()
    assert shell("print([job.pk for job in jobs()])") == f"[{bad.pk}, {good.pk}]"
    assert shell("print(jobs('run_body').get().result)") == "42"
    assert shell("print(jobs(status='retry').get().pk, jobs(queue='mail').get().pk)") == f"{bad.pk} {bad.pk}"
    text = shell("failure()")
    assert text.startswith(f"Job {bad.pk}: tests.app.inline_tasks.short(*['1'], **{{}}), attempt 1, retry\n")
    assert text.endswith("ValueError: no such order")
    assert shell(f"failure({good.pk})") == f"Job {good.pk} has no error."
    with pytest.raises(ValueError, match="'gone' is not a valid"):
        shell("jobs(status='gone')")


def test_run_and_retry(shell: Any, add: Add) -> None:
    good, bad = add(lambda: 42), add(FAIL)
    assert shell(f"print(run_here({good.pk}))") == "42"
    with pytest.raises(ValueError, match="no such order"):
        shell(f"run_here(Job.objects.get(pk={bad.pk}))")
    tasks.BODIES["1"] = lambda: "mended"
    assert shell(f"retry({bad.pk}); print(run_here({bad.pk}))") == "mended"


@pytest.mark.django_db(transaction=True, databases="__all__")
def test_ids_of_another_database(shell: Any, add: Add) -> None:
    job = add(lambda: 42, tasks.run_body.using(database="other"))
    assert shell(f"print(run_here('other:{job.pk}'))") == "42"
    assert shell(f"why('other:{job.pk}')").partition("): ")[2].startswith("It was done at ")
    with pytest.raises(ValueError, match="'first' is not the id of a job"):
        shell("why('first')")
    with pytest.raises(Job.DoesNotExist, match=f"There is no job {job.pk} in the database 'default'"):
        shell(f"why({job.pk})")


def test_why(shell: Any, add: Add) -> None:
    job: Job = add(lambda: shell(f"why({job.pk})"))
    later = add(task=tasks.later)

    def asked(each: Any) -> str:
        said = shell(f"why({each.pk})")
        assert said.startswith(f"Job {each.pk} ({fresh(each).task_path}, {fresh(each).status}): ")
        return str(said.partition("): ")[2])

    assert asked(job) == (
        "No worker serves the queue 'default' in the database 'default'. "
        "Start a worker: manage.py runqueueworker --queues default"
    )
    assert asked(later).startswith("It is due in 23 h 59 min, at ")
    error = {"class": "builtins.KeyError", "message": "'x'", "step": "load"}
    failed = JobFactory.create(failed=True, errors=[error])
    assert asked(failed).endswith(f"KeyError: 'x' (in the step 'load'). To run it again: retry({failed.pk})")
    run_due()
    assert re.search(r"It runs: attempt 1, for \d+ s, on ", str(fresh(job).result))
    assert asked(job).startswith("It was done at ")
