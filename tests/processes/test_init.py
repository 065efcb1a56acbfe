"""The supervisor as the first process of a container, which inherits all orphans and must reap them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from django_pgqueue import enqueue
from django_pgqueue.models import Job
from tests.app import process_tasks, worker_tasks
from tests.app.models import Entry
from tests.support.commands import SLOW, Command, children_of
from tests.support.workers import fresh, until

UNSHARE = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
if os.getuid():
    UNSHARE[1:1] = ["--user", "--map-root-user"]


def namespaces_are_allowed() -> bool:
    """Return whether processes may be started in a separate namespace here."""
    try:
        return subprocess.run([*UNSHARE, "true"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def done(job: Job) -> None:
    until(lambda: fresh(job).status == "done", seconds=SLOW)


pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="namespaces of processes are Linux'"),
    pytest.mark.skipif(not namespaces_are_allowed(), reason="unshare --pid is not there or not allowed"),
]


def test_it_reaps_orphans_and_stops_in_order(start: Callable[..., Command]) -> None:
    command = start(through=UNSHARE)
    command.workers()
    (init,) = children_of(command.process.pid)
    inside = Path(f"/proc/{init}/ns/pid").readlink()
    assert inside != Path("/proc/self/ns/pid").readlink()
    for _ in range(3):
        job = enqueue(process_tasks.daemonise)
        done(job)
    # Only the worker process is left: no grandchild and no zombie.
    until(lambda: len(children_of(init)) == 1, seconds=SLOW, what="no zombies")
    # It still gets the exit codes of its own children.
    crash = enqueue(process_tasks.exit_once, "x", 7)
    command.logged("ended with exit code 7")
    done(crash)
    job = enqueue(worker_tasks.wait_for_entry, "go")
    until(lambda: Entry.objects.filter(key="go runs").exists(), seconds=SLOW)
    os.kill(init, signal.SIGTERM)
    command.logged("Stopping: waiting")
    Entry.objects.create(key="go")
    assert command.wait() == 0, command.log
    assert fresh(job).status == "done"
