"""Signals and deaths: running jobs may finish, waiting jobs go back, and no job and no process is left
behind.
"""

from __future__ import annotations

import os
import re
import signal
from typing import Any

import pytest
from django.core.management import call_command

from django_pgqueue import enqueue, enqueue_many
from django_pgqueue.jobs.limits import drain_worker
from django_pgqueue.models import Job, JobStack, Worker
from tests.app import process_tasks, timing_tasks as timing, worker_tasks as tasks
from tests.app.models import Entry
from tests.support.commands import SLOW, Start, begun, gone, is_alive, left_behind, over
from tests.support.sessions import Connect
from tests.support.workers import fresh, run_due, until


def draining(count: int = 1) -> None:
    until(lambda: Worker.objects.filter(state="draining").count() == count, seconds=SLOW, what="draining")


@pytest.mark.promise("sigterm")
def test_sigterm_lets_running_jobs_finish_and_gives_the_rest_back(start: Start) -> None:
    """Fast jobs are claimed in batches, so that some are claimed but not started when the signal comes."""
    command = start("--threads", "1")
    over(*enqueue_many(tasks.noop.bind() for _ in range(200)).ids)
    running = enqueue(tasks.wait_for_entry, "go")
    rest = Job.objects.filter(pk__in=enqueue_many(tasks.count_runs.bind("x") for _ in range(40)).ids)
    begun("go")
    command.send(signal.SIGTERM)
    draining()
    Entry.objects.create(key="go")
    assert command.wait() == 0, command.log
    assert "Stopped: all started jobs have finished." in command.log
    assert fresh(running).status == "done"
    assert set(rest.values_list("status", "attempts")) == {("pending", 0)}
    assert not Worker.objects.exists()
    run_due()
    assert set(rest.values_list("status", "attempts")) == {("done", 1)}
    assert Entry.objects.filter(key="x").count() == 40


@pytest.mark.promise("told-to-stop", "second-signal", "grace-costs-no-attempt", "stop-costs-no-attempt")
def test_a_second_signal_ends_the_grace_and_costs_no_attempt(start: Start, connect: Connect) -> None:
    command = start("--grace", "600")
    job = enqueue(tasks.wait_for_entry, "never")
    begun("never")
    command.send(signal.SIGTERM)
    command.logged("Stopping: waiting up to 600 s")
    # While its row is locked, the process cannot give the job back before the supervisor has named it.
    holder = connect()
    holder.execute("SELECT FROM pgqueue_job_live WHERE id = %s FOR UPDATE", (job.pk,))
    command.send(signal.SIGTERM)
    command.logged("Stopping now.")
    holder.rollback()
    assert command.wait() == 0, command.log
    back = fresh(job)
    assert (back.status, back.attempts, back.waiting_reason) == ("pending", 0, "its worker was stopped")
    assert not Worker.objects.exists()
    named = rf"1 running job \({tasks.wait_for_entry.module_path} \d+ s\)"
    assert re.search(rf"Stopping: waiting up to 600 s for {named}\. Send the signal again to", command.log)
    assert re.search(rf"Stopping now\. {named} will be requeued and start over later\.", command.log)
    assert "did not finish within the grace" in command.log
    assert "Stopped: interrupted 1 running job." in command.log


def test_a_worker_that_cannot_notice_the_end_of_its_grace_is_killed_with_its_programs(start: Start) -> None:
    """Its task holds the GIL. The job goes back."""
    command = start("--grace", "0", constants={"supervisor.KILL_AFTER": 1.0})
    (worker,) = command.workers()
    job = enqueue(process_tasks.leave_subprocess, "x", "hold the GIL")
    program = left_behind("x")
    command.send(signal.SIGTERM)
    assert command.wait() == 0, command.log
    assert "did not stop within the grace" in command.log
    assert "Stopped: interrupted 1 running job." in command.log
    assert not is_alive(worker.pid)
    gone(program)
    assert (fresh(job).status, fresh(job).attempts) == ("pending", 0)
    assert not Worker.objects.exists()


@pytest.mark.promise("drain", "killed-at-deadline")
def test_a_process_that_hangs_while_it_drains_is_replaced_and_no_job_is_blamed(start: Start) -> None:
    command = start("--grace", "3", constants={"child.DRAINING": {"killed_after": 1.0}})
    (old,) = command.workers()
    job = enqueue(tasks.wait_for_entry, "go")
    begun("go")
    assert drain_worker(old)
    draining()
    os.kill(old.pid, signal.SIGSTOP)
    command.logged("(it did not end within 1 s after its grace period)")
    begun("go", 2)
    (new,) = command.workers()
    assert (new.supervisor, new.drain) == (old.supervisor, "")
    Entry.objects.create(key="go")
    over(job)
    assert (fresh(job).status, fresh(job).attempts, fresh(job).crash_count) == ("done", 1, 0)
    assert command.process.poll() is None


@pytest.mark.promise("stopped-process", "back-without-leases")
def test_a_process_that_is_stopped_long_loses_its_jobs_and_does_no_harm_when_it_wakes(
    start: Start, settings: Any
) -> None:
    command = start(HEARTBEAT=0.2, LEASE=1)
    (worker,) = command.workers()
    job = enqueue(tasks.wait_for_entry, "go")
    begun("go")
    os.kill(worker.pid, signal.SIGSTOP)
    try:
        until(lambda: fresh(job).status == "pending", seconds=SLOW)
        Entry.objects.create(key="go")
        settings.PGQUEUE = {"HEARTBEAT": 0.2, "LEASE": 1}
        call_command("runqueueworker", burst=True, one_process=True, skip_checks=True)
        assert (fresh(job).status, fresh(job).worker == worker.pk) == ("done", False)
    finally:
        os.kill(worker.pid, signal.SIGCONT)
    command.logged("the lease was lost, so its outcome (done) was refused")
    assert (fresh(job).status, fresh(job).attempts) == ("done", 1)
    # It registers again, and continues to work.
    until(lambda: Worker.objects.filter(pk=worker.pk).exists(), seconds=SLOW)
    after = enqueue(tasks.noop)
    over(after)
    assert fresh(after).worker == worker.pk


@pytest.mark.promise("blame-counts-a-crash", "timeout-gil", "live-worker-keeps-jobs")
def test_a_task_that_holds_the_gil_keeps_its_lease_until_its_timeout_and_its_neighbor_is_not_blamed(
    start: Start,
) -> None:
    # Long enough for the worker to end the process of the isolated job itself, even on a busy machine.
    command = start(
        "--threads", "2", "--grace", "0", constants={"supervisor.KILL_AFTER": 3.0},
        TIMEOUT_GRACE=0.5, CRASH_LIMIT=2, BACKOFF_BASE=0, HEARTBEAT=0.2,
    )  # fmt: skip
    neighbor = enqueue(tasks.wait_for_entry, "go")
    begun("go")
    stuck = enqueue(timing.holds_the_gil_for_ever, "stuck")
    begun("stuck")
    worker = Worker.objects.get()
    beats = Worker.objects.filter(pk=worker.pk, heartbeat_at__gt=worker.heartbeat_at)
    until(beats.exists, what="a heartbeat for a process that cannot send it")
    assert fresh(stuck).worker == worker.pk
    command.logged("which cannot end its overdue jobs")
    until(lambda: fresh(stuck).crash_count == 1, seconds=SLOW)
    kept = JobStack.objects.get(pk=stuck.pk)
    assert (kept.at_end, ", in holds_the_gil_for_ever" in kept.lines) == (True, True)
    # It has ended a process, so it now runs alone, and fails there because of its timeout.
    over(stuck)
    failed = fresh(stuck)
    assert (failed.status, failed.attempts, failed.crash_count) == ("failed", 1, 1)
    assert failed.errors[0]["class"].endswith("TaskTimeout")
    Entry.objects.create(key="go")
    over(neighbor)
    done = fresh(neighbor)
    assert (done.status, done.attempts, done.crash_count) == ("done", 1, 0)


def test_neither_an_exit_with_0_nor_a_thread_that_never_ends_counts_as_work(start: Start) -> None:
    """Such a task has not finished the work of its process, and does not keep the process."""
    ends = enqueue(process_tasks.exit_once.using(priority=1), "x", 0)
    leaves, reads = enqueue(process_tasks.leave_thread), enqueue(process_tasks.read_input)
    command = start("--burst", "--threads", "1", env={"TEST_LINGER": "0.3"})
    assert command.wait() == 0, command.log
    assert {fresh(job).status for job in (ends, leaves, reads)} == {"done"}
    assert fresh(reads).result == ["", ""], "standard input is empty for tasks"
    assert "ended with exit code 0" in command.log
    waits = "does not wait any longer for threads that its tasks have left running: of-a-task"
    assert waits in command.log
