"""What tasks leave behind does not outlive, block or confuse the process that ran them."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

from django_pgqueue import enqueue
from django_pgqueue.models import Worker
from tests.app import process_tasks as tasks
from tests.app.apps import KILL_AFTER
from tests.app.models import Entry
from tests.support.commands import SLOW, Command, is_alive
from tests.support.workers import fresh, until

Start = Callable[..., Command]


def left_behind(key: str) -> int:
    """Return the program that a `leave_subprocess` job has started."""
    found = until(lambda: Entry.objects.filter(key=f"{key} runs").first(), seconds=SLOW)
    return int(found.note)


def gone(pid: int) -> None:
    until(lambda: not is_alive(pid), seconds=SLOW, what=f"process {pid} is gone")


def test_the_programs_of_a_worker_that_crashes_end_with_it(start: Start) -> None:
    command = start()
    (worker,) = command.workers()
    job = enqueue(tasks.leave_subprocess, "x", "wait")
    program = left_behind("x")
    os.kill(worker.pid, signal.SIGKILL)
    gone(program)
    until(lambda: fresh(job).status == "done", seconds=SLOW)


def test_the_programs_of_a_worker_that_is_killed_end_with_it(start: Start) -> None:
    """The grace is over, but the process cannot notice it: its task holds the GIL. The job goes back."""
    command = start("--grace", "0", env={KILL_AFTER: "1"})
    (worker,) = command.workers()
    job = enqueue(tasks.leave_subprocess, "x", "hold the GIL")
    program = left_behind("x")
    command.send(signal.SIGTERM)
    assert command.wait() == 0, command.log
    assert "did not stop within the grace" in command.log
    assert not is_alive(worker.pid)
    gone(program)
    assert (fresh(job).status, fresh(job).attempts) == ("pending", 0)
    assert not Worker.objects.exists()


def test_the_programs_of_a_worker_that_is_replaced_are_asked_to_end(start: Start) -> None:
    job = enqueue(tasks.leave_subprocess, "x", "return")
    command = start("--max-jobs", "1")
    gone(left_behind("x"))
    command.logged("is replaced")
    assert fresh(job).status == "done"


def test_a_thread_that_never_ends_does_not_keep_the_process(start: Start) -> None:
    job, reads = enqueue(tasks.leave_thread), enqueue(tasks.read_input)
    command = start("--burst")
    assert command.wait() == 0, command.log
    assert fresh(job).status == "done"
    assert fresh(reads).result == ["", ""], "standard input is empty for tasks"
    assert "does not wait any longer for threads that its tasks have left running: of-a-task" in command.log


def test_a_task_that_exits_with_0_has_not_finished_the_work_of_its_process(start: Start) -> None:
    job = enqueue(tasks.exit_once, "x", 0)
    command = start("--burst")
    assert command.wait() == 0, command.log
    assert "ended with exit code 0" in command.log
    assert fresh(job).status == "done"
