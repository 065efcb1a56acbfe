"""Signals and deaths: running jobs may finish, waiting jobs go back, and no job and no process is left
behind.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from django_pgqueue import enqueue, enqueue_many
from django_pgqueue.jobs.limits import drain_worker
from django_pgqueue.models import Job, Worker
from tests.app import worker_tasks as tasks
from tests.app.models import Entry
from tests.support.commands import SLOW, Command, is_alive
from tests.support.sessions import Connect
from tests.support.workers import fresh, until

Start = Callable[..., Command]


def runs(key: str, count: int = 1) -> None:
    """Wait until this many `wait_for_entry` jobs run."""
    until(lambda: Entry.objects.filter(key=f"{key} runs").count() >= count, seconds=SLOW, what=f"{key} runs")


@pytest.mark.promise("sigterm")
def test_sigterm_lets_running_jobs_finish_and_gives_the_rest_back(start: Start) -> None:
    command = start("--threads", "2")
    running = enqueue_many(tasks.wait_for_entry.bind("go") for _ in range(2)).ids
    runs("go", 2)
    waiting = enqueue_many(tasks.noop.bind() for _ in range(50)).ids
    command.send(signal.SIGTERM)
    until(lambda: Worker.objects.filter(state="draining").exists(), seconds=SLOW)
    Entry.objects.create(key="go")
    assert command.wait() == 0, command.log
    assert [fresh(pk).status for pk in running] == ["done", "done"]
    left = Job.objects.filter(pk__in=waiting)
    assert set(left.values_list("status", "attempts")) == {("pending", 0)}
    assert not Worker.objects.exists()
    # The next worker runs the rest.
    assert start("--burst").wait() == 0
    assert left.filter(status="done", attempts=1).count() == 50


def test_prefetched_jobs_go_back_at_sigterm(start: Start) -> None:
    """Fast jobs are claimed in batches. Some are claimed but not started when the signal comes."""
    command = start("--threads", "1")
    warm = enqueue_many(tasks.noop.bind() for _ in range(500)).ids
    until(lambda: Job.objects.filter(pk__in=warm, status="done").count() == 500, seconds=SLOW)
    enqueue(tasks.wait_for_entry, "go")
    rest = enqueue_many(tasks.count_runs.bind("x") for _ in range(300)).ids
    runs("go")
    command.send(signal.SIGTERM)
    Entry.objects.create(key="go")
    assert command.wait() == 0, command.log
    assert not Job.objects.filter(status="running").exists()
    assert start("--burst").wait() == 0
    assert Job.objects.filter(pk__in=rest, status="done", attempts=1).count() == 300
    assert Entry.objects.filter(key="x").count() == 300


@pytest.mark.promise("told-to-stop", "grace-costs-no-attempt", "stop-costs-no-attempt")
def test_what_outlives_the_grace_goes_back_without_spending_an_attempt(start: Start) -> None:
    command = start("--grace", "0")
    job = enqueue(tasks.wait_for_entry, "never")
    runs("never")
    command.send(signal.SIGTERM)
    assert command.wait() == 0, command.log
    back = fresh(job)
    assert (back.status, back.attempts, back.waiting_reason) == ("pending", 0, "its worker was stopped")
    assert "did not finish within the grace" in command.log


@pytest.mark.promise("second-signal")
def test_a_second_signal_does_not_wait(start: Start, connect: Connect) -> None:
    command = start("--grace", "600")
    job = enqueue(tasks.wait_for_entry, "never")
    runs("never")
    command.send(signal.SIGTERM)
    command.logged("Stopping: waiting up to 600 s")
    # While its row is locked, the process cannot give the job back before the supervisor has named it.
    holder = connect()
    holder.execute("SELECT FROM pgqueue_job_live WHERE id = %s FOR UPDATE", (job.pk,))
    command.send(signal.SIGTERM)
    command.logged("Stopping now.")
    holder.rollback()
    assert command.wait() == 0, command.log
    assert (fresh(job).status, fresh(job).attempts) == ("pending", 0)
    assert not Worker.objects.exists()
    named = rf"1 running job \({tasks.wait_for_entry.module_path} \d+ s\)"
    assert re.search(rf"Stopping: waiting up to 600 s for {named}\. Send the signal again to", command.log)
    assert re.search(rf"Stopping now\. {named} will be requeued and start over later\.", command.log)


def test_a_terminal_that_closes_lets_running_jobs_finish(start: Start) -> None:
    """The shell and the kernel may both send the signal, so the second one must not speed up the stop."""
    command = start("--grace", "600")
    job = enqueue(tasks.wait_for_entry, "go")
    runs("go")
    command.send(signal.SIGHUP)
    command.logged("Stopping: waiting up to 600 s for 1 running job (")
    until(lambda: Worker.objects.filter(state="draining").exists(), seconds=SLOW)
    command.send(signal.SIGHUP)
    Entry.objects.create(key="go")
    assert command.wait() == 0, command.log
    assert fresh(job).status == "done"


def test_ctrl_c_stops_it_too(start: Start) -> None:
    command = start()
    command.workers()
    command.send(signal.SIGINT)
    assert command.wait() == 0, command.log
    assert "Traceback" not in command.log
    assert "Stopping: no jobs are running." in command.log


@pytest.mark.promise("dead-process")
def test_the_jobs_of_a_killed_process_run_again_at_once(start: Start) -> None:
    command = start()
    (worker,) = command.workers()
    job = enqueue(tasks.wait_for_entry, "go")
    runs("go")
    os.kill(worker.pid, signal.SIGKILL)
    runs("go", 2)
    Entry.objects.create(key="go")
    until(lambda: fresh(job).status == "done", seconds=SLOW)
    assert (fresh(job).attempts, fresh(job).errors) == (1, [])
    (new,) = command.workers()
    assert new.pk == fresh(job).worker != worker.pk
    assert "ended with signal SIGKILL" in command.log
    assert "requeued 1 job of the process that ended" in command.log


@pytest.mark.promise("dead-supervisor")
def test_the_jobs_of_a_worker_that_vanished_altogether_are_recovered_by_another(start: Start) -> None:
    command = start(HEARTBEAT=0.2, LEASE=1)
    (worker,) = command.workers()
    job = enqueue(tasks.wait_for_entry, "go")
    runs("go")
    os.kill(command.process.pid, signal.SIGSTOP)  # so that it cannot replace what is killed next
    os.kill(worker.pid, signal.SIGKILL)
    command.send(signal.SIGKILL)
    other = start(HEARTBEAT=0.2, LEASE=1)
    runs("go", 2)
    Entry.objects.create(key="go")
    until(lambda: fresh(job).status == "done", seconds=SLOW)
    assert "found 1 dead worker, requeued 1 job" in other.log


def test_a_process_that_is_stopped_long_is_replaced_if_its_tasks_never_end(start: Start) -> None:
    command = start("--threads", "1", HEARTBEAT=0.2, LEASE=1)
    (worker,) = command.workers()
    job = enqueue(tasks.wait_for_entry, "go")
    runs("go")
    os.kill(worker.pid, signal.SIGSTOP)
    try:
        start(HEARTBEAT=0.2, LEASE=1)
        runs("go", 2)
    finally:
        os.kill(worker.pid, signal.SIGCONT)
    command.logged("is replaced: lost jobs take all its threads")
    until(lambda: not is_alive(worker.pid), seconds=SLOW)
    assert (fresh(job).status, fresh(job).attempts) == ("running", 1)
    Entry.objects.create(key="go")
    until(lambda: fresh(job).status == "done", seconds=SLOW)


@pytest.mark.promise("stopped-process", "back-without-leases")
def test_a_process_that_is_stopped_long_loses_its_jobs_and_does_no_harm_when_it_wakes(start: Start) -> None:
    command = start(HEARTBEAT=0.2, LEASE=1)
    (worker,) = command.workers()
    job = enqueue(tasks.wait_for_entry, "go")
    runs("go")
    os.kill(worker.pid, signal.SIGSTOP)
    try:
        other = start(HEARTBEAT=0.2, LEASE=1)
        runs("go", 2)
        Entry.objects.create(key="go")
        until(lambda: fresh(job).status == "done", seconds=SLOW)
        assert fresh(job).worker != worker.pk
    finally:
        os.kill(worker.pid, signal.SIGCONT)
    command.logged("the lease was lost, so its outcome (done) was refused")
    assert fresh(job).attempts == 1
    # It registers again, and continues to work.
    until(lambda: Worker.objects.filter(pk=worker.pk).exists(), seconds=SLOW)
    other.send(signal.SIGTERM)
    assert other.wait() == 0
    after = enqueue(tasks.noop)
    until(lambda: fresh(after).status == "done", seconds=SLOW)


#: Settings with other deadlines for the states of processes.
DEADLINES = """
import atexit, sys
from tests.processes.settings import *
from tests.app import gil
from django_pgqueue.worker.supervisor import child
child.{state} = child.{state}._replace({changes})
if "django_pgqueue.worker" in sys.orig_argv:
    {at_start}
"""


def with_deadlines(folder: Path, state: str, changes: str, at_start: str = "pass") -> dict[str, str]:
    """Return the environment of a command with these settings."""
    (folder / "deadlines.py").write_text(DEADLINES.format(state=state, changes=changes, at_start=at_start))
    return {"PYTHONPATH": str(folder), "DJANGO_SETTINGS_MODULE": "deadlines"}


def test_a_process_that_is_replaced_after_its_last_job_says_for_which_it_waits(
    start: Start, tmp_path: Path
) -> None:
    alive = tmp_path / "alive"
    command = start(
        "--max-jobs",
        "2",
        "--alive-file",
        str(alive),
        env=with_deadlines(tmp_path, "DRAINING", "told_after=0.1"),
    )
    (old,) = command.workers()
    jobs = [enqueue(tasks.wait_for_entry, "go"), enqueue(tasks.noop)]
    command.logged("claims no more jobs, and has waited 0.1 s for 1 running job (")
    assert f"({tasks.wait_for_entry.module_path} " in command.log
    assert Worker.objects.get().state == "draining"
    until(lambda: alive.read_text() == "0 of 1 process at work; 1 draining\n", seconds=SLOW)
    later = enqueue(tasks.noop)
    Entry.objects.create(key="go")
    until(lambda: {fresh(job).status for job in [*jobs, later]} == {"done"}, seconds=SLOW)
    assert command.workers() != [old]


def test_a_process_that_hangs_at_its_exit_is_replaced(start: Start, tmp_path: Path) -> None:
    env = with_deadlines(tmp_path, "ENDING", "killed_after=1.0", "atexit.register(gil.hold_for_ever)")
    command = start("--max-jobs", "1", env=env)
    jobs = [enqueue(tasks.noop), enqueue(tasks.noop)]
    until(lambda: {fresh(job).status for job in jobs} == {"done"}, seconds=SLOW)
    command.logged("it was done, but an exit handler or a thread kept it from ending within 1 s")
    command.logged("has ended and is replaced")
    assert {(fresh(job).attempts, fresh(job).crash_count) for job in jobs} == {(1, 0)}


@pytest.mark.promise("killed-at-deadline")
def test_a_process_that_hangs_while_it_drains_is_replaced_and_no_job_is_blamed(
    start: Start, tmp_path: Path
) -> None:
    command = start("--grace", "3", env=with_deadlines(tmp_path, "DRAINING", "killed_after=1.0"))
    (old,) = command.workers()
    job = enqueue(tasks.wait_for_entry, "go")
    runs("go")
    assert drain_worker(old)
    until(lambda: Worker.objects.filter(state="draining").exists(), seconds=SLOW)
    os.kill(old.pid, signal.SIGSTOP)
    command.logged("(it did not end within 1 s after its grace period)")
    runs("go", 2)
    Entry.objects.create(key="go")
    until(lambda: fresh(job).status == "done", seconds=SLOW)
    assert (fresh(job).attempts, fresh(job).crash_count) == (1, 0)
