"""Tasks that do not end after their timeout, and what happens to their process."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from django_pgqueue import enqueue
from django_pgqueue.models import Job
from tests.app import timing_tasks as timing
from tests.app import worker_tasks as tasks
from tests.app.apps import KILL_AFTER
from tests.app.models import Entry
from tests.support.commands import SLOW, Command, is_alive
from tests.support.workers import fresh, until

Start = Callable[..., Command]


def begun(key: str, count: int = 1) -> None:
    until(lambda: Entry.objects.filter(key=f"{key} runs").count() >= count, seconds=SLOW, what=f"{key} runs")


def over(job: Job) -> Job:
    until(lambda: fresh(job).is_finished, seconds=SLOW, what=f"{job} over")
    return fresh(job)


def test_a_task_that_goes_on_costs_its_process_and_nobody_else(start: Start) -> None:
    command = start("--threads", "2", TIMEOUT_GRACE=0.5)
    (worker,) = command.workers()
    neighbour = enqueue(tasks.wait_for_entry, "go")
    begun("go")
    deaf = enqueue(timing.deaf_for_ever, "deaf")
    command.logged("this process finishes its other jobs and is replaced")
    assert is_alive(worker.pid)
    Entry.objects.create(key="go")
    assert over(neighbour).status == "done"
    failed = over(deaf)
    assert (failed.status, failed.attempts, failed.crash_count) == ("failed", 1, 0)
    assert failed.errors[0]["class"].endswith("TaskTimeout")
    until(lambda: not is_alive(worker.pid), seconds=SLOW)
    after = enqueue(tasks.noop)
    assert over(after).status == "done"
    assert fresh(neighbour).attempts == 1
    assert Entry.objects.filter(key="go runs").count() == 1


@pytest.mark.promise("blame-counts-a-crash", "timeout-gil")
def test_a_task_that_holds_the_gil_is_killed_by_the_supervisor_and_its_neighbour_is_not_blamed(
    start: Start,
) -> None:
    # Long enough for the worker to end the process of the isolated job itself, even on a busy machine.
    command = start(
        "--threads", "2", "--grace", "0", env={KILL_AFTER: "4"},
        TIMEOUT_GRACE=0.5, CRASH_LIMIT=2, BACKOFF_BASE=0,
    )  # fmt: skip
    neighbour = enqueue(tasks.wait_for_entry, "go")
    begun("go")
    stuck = enqueue(timing.holds_the_gil_for_ever, "stuck")
    command.logged("which cannot end its overdue jobs")
    # It has ended a process, so it now runs alone, and fails there because of its timeout.
    failed = over(stuck)
    assert (failed.status, failed.attempts, failed.crash_count) == ("failed", 1, 1)
    assert failed.errors[0]["class"].endswith("TaskTimeout")
    Entry.objects.create(key="go")
    done = over(neighbour)
    assert (done.status, done.attempts, done.crash_count) == ("done", 1, 0)


@pytest.mark.promise("live-worker-keeps-jobs")
def test_a_task_that_holds_the_gil_keeps_its_lease(start: Start) -> None:
    """The task runs longer than the lease, and its supervisor sends heartbeats for the live process."""
    # Long enough for a heartbeat even on a busy machine.
    command = start("--threads", "1", LEASE=6, HEARTBEAT=0.5)
    other = start("--threads", "1", LEASE=6, HEARTBEAT=0.5)
    (busy, _) = until(lambda: found if len(found := command.workers(2)) == 2 else [], seconds=SLOW)
    assert busy
    job = enqueue(timing.holds_the_gil, 8.0)
    done = over(job)
    assert (done.status, done.attempts, done.crash_count) == ("done", 1, 0)
    assert "dead worker" not in command.log + other.log
