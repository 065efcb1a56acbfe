"""When the supervisor is killed, none of its processes is left, whatever the process was doing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from django_pgqueue import enqueue
from django_pgqueue.models import Worker
from tests.app import process_tasks, worker_tasks
from tests.app.models import Entry
from tests.support.commands import SLOW, Command, is_alive, parent_of
from tests.support.workers import fresh, until

Start = Callable[..., Command]

needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux kills a process with its parent")


@needs_linux
@pytest.mark.parametrize(
    "task", [worker_tasks.wait_for_entry, process_tasks.hold_gil_once], ids=["sleeps", "holds-the-gil"]
)
@pytest.mark.promise("dead-supervisor")
def test_its_processes_die_with_it_and_their_jobs_run_elsewhere(start: Start, task: Any) -> None:
    """A task that sleeps, and one that holds the GIL in C, where no signal handler would ever run."""
    # With such a long lease, dead workers are found only by the lock that they no longer hold.
    commands = [start("--processes", count, "--grace", "600", LEASE=3600) for count in ("2", "1")]
    until(lambda: Worker.objects.count() == 3, seconds=SLOW)
    job = enqueue(task, "go")
    until(lambda: Entry.objects.filter(key="go runs").exists(), seconds=SLOW)
    # Its supervisor has noted that it had begun, so that it could count a crash.
    noted = Worker.objects.values_list("started_jobs", flat=True)
    until(lambda: any(job.pk in (jobs or []) for jobs in noted.all()), seconds=SLOW, what="noted")
    holder = Worker.objects.get(pk=str(fresh(job).worker))
    (command,) = (command for command in commands if command.process.pid == parent_of(holder.pid))
    pids = Worker.objects.filter(supervisor=holder.supervisor).values_list("pid", flat=True)
    command.send(signal.SIGKILL)
    command.process.wait(SLOW)
    until(lambda: not any(is_alive(pid) for pid in pids), seconds=SLOW, what="their processes are gone")
    Entry.objects.create(key="go")
    until(lambda: fresh(job).status == "done", seconds=SLOW, what="the job has run again")
    assert fresh(job).worker != holder.pk
    assert (fresh(job).crash_count, fresh(job).lost_in_a_row) == (0, 1)
    forgotten = Worker.objects.filter(supervisor=holder.supervisor)
    until(lambda: not forgotten.exists(), seconds=SLOW, what="all forgotten")


def test_elsewhere_they_see_the_end_of_the_line_and_drain(start: Start, tmp_path: Path) -> None:
    """Test the way for systems that send no signal at the parent's death."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "if 'django_pgqueue.worker' in sys.orig_argv:\n"
        "    from django_pgqueue.worker import spawn\n"
        "    spawn.die_with = lambda parent: None\n"
    )
    command = start("--processes", "2", "--grace", "600", env={"PYTHONPATH": str(tmp_path)})
    workers = command.workers(2)
    job = enqueue(worker_tasks.wait_for_entry, "go")
    until(lambda: Entry.objects.filter(key="go runs").exists(), seconds=SLOW)
    command.send(signal.SIGKILL)
    command.process.wait(SLOW)
    command.logged("the supervisor is gone: stopping this worker", times=2)
    Entry.objects.create(key="go")
    until(lambda: not any(is_alive(worker.pid) for worker in workers), seconds=SLOW)
    assert fresh(job).status == "done"
    assert not Worker.objects.exists()


@needs_linux
@pytest.mark.parametrize(("parent", "said", "code"), [(os.getpid, "lives", 0), (os.getppid, "", 1)])
def test_a_process_whose_parent_died_before_it_could_ask_ends_itself(
    parent: Callable[[], int], said: str, code: int
) -> None:
    """The current parent is not the supervisor with which the process must die."""
    program = (
        "import sys; from django_pgqueue.worker.spawn import die_with\n"
        "die_with(int(sys.argv[1])); print('lives')"
    )
    command = [sys.executable, "-c", program, str(parent())]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.stdout.strip(), ended.returncode) == (said, code)
