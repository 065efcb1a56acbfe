"""Measure how soon a started job runs again after its worker dies: ``python -m benchmarks.recovery``.

This uses a durable server (the one that DATABASE_URL names, or one of its own), real processes and default
settings, and prints medians of several runs. Each time is measured from the signal to the first statement of
the task's second run, by the machine's monotonic clock:

    process      a worker process gets SIGKILL
    supervisor   a supervisor gets SIGKILL while another one runs
    all          a supervisor and its process get SIGKILL, and the next command is started at once
    stopped      a worker process gets SIGSTOP while another one runs: its lease must run out
    server       the server is restarted: the time until the worker runs a new job (not with DATABASE_URL)
"""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.bench import empty, one, rows, run_worker, set_up, wait_for

RUNS = 5


def main() -> None:
    """Measure everything and print the results."""
    has_own_server = not os.environ.get("DATABASE_URL")
    set_up()
    measure("process", process_killed)
    measure("supervisor", supervisor_killed)
    measure("all", all_killed)
    measure("stopped", process_stopped)
    if has_own_server:
        measure("server", server_restarted)


def measure(name: str, scene: Callable[[ExitStack, Path], float]) -> None:
    """Run a scene several times."""
    seconds = []
    for _ in range(RUNS):
        empty()
        with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
            path = Path(folder) / "job"
            try:
                seconds.append(scene(stack, path))
            finally:
                path.touch()  # lets the running job end, and then the workers
    print(f"{name}: {statistics.median(seconds):.2f} s ({min(seconds):.2f} to {max(seconds):.2f})")


def process_killed(stack: ExitStack, path: Path) -> float:
    """Kill a process. Its supervisor sees it die."""
    begin(stack, path)
    killed = kill(pid_of_worker())
    return run(path, 2) - killed


def supervisor_killed(stack: ExitStack, path: Path) -> float:
    """Kill a supervisor. Another supervisor notices that its heartbeats are missing."""
    worker = begin(stack, path)
    stack.enter_context(command())
    wait_for("SELECT count(*) = 2 FROM pgqueue_worker")
    killed = kill(worker.pid)
    return run(path, 2) - killed


def all_killed(stack: ExitStack, path: Path) -> float:
    """Kill everything. The next supervisor notices that the heartbeats of the last one are missing."""
    worker = begin(stack, path)
    killed = kill(worker.pid, pid_of_worker())
    stack.enter_context(command())
    return run(path, 2) - killed


def process_stopped(stack: ExitStack, path: Path) -> float:
    """Stop a process. It exists and holds its lock, but nobody sends heartbeats for it."""
    begin(stack, path)
    pid = pid_of_worker()
    stack.enter_context(command())
    wait_for("SELECT count(*) = 2 FROM pgqueue_worker")
    stopped = time.monotonic()
    os.kill(pid, signal.SIGSTOP)
    try:
        return run(path, 2) - stopped
    finally:
        os.kill(pid, signal.SIGCONT)


def server_restarted(stack: ExitStack, path: Path) -> float:
    """Restart the server. The worker tries to connect until the server is back."""
    from django.db import connection

    from benchmarks.tasks import hold
    from django_pgqueue import enqueue
    from example_project.embedded_programs import run as run_program

    begin(stack, path)
    data = one("SHOW data_directory")
    connection.close()
    run_program("pg_ctl", "restart", "-D", data, "-m", "fast", "-l", f"{data}/server.log")
    back = time.monotonic()
    other = path.with_name("other")
    stack.callback(other.touch)
    enqueue(hold, str(other))
    seconds = run(other, 1) - back
    if len(runs(path)) != 1:
        raise SystemExit("The restart of the server has taken a job from a live worker.")
    return seconds


def begin(stack: ExitStack, path: Path) -> subprocess.Popen[bytes]:
    """Start a worker that runs a job. The job ends when `path` exists."""
    from benchmarks.tasks import hold
    from django_pgqueue import enqueue

    worker = stack.enter_context(command())
    enqueue(hold, str(path))
    run(path, 1)
    return worker


@contextmanager
def command() -> Iterator[subprocess.Popen[bytes]]:
    """Run a worker command for the duration of a block, and wait until it has ended."""
    worker = run_worker(is_silent=True)
    try:
        yield worker
    finally:
        worker.terminate()
        worker.wait()


def kill(*pids: int) -> float:
    """Send SIGKILL to all of them, and return the time of the first signal."""
    now = time.monotonic()
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:  # it has already died with its supervisor
            continue
    return now


def pid_of_worker() -> int:
    """Return the id of the only worker process."""
    ((pid,),) = rows("SELECT pid FROM pgqueue_worker")
    return int(pid)


def run(path: Path, number: int) -> float:
    """Wait until the job of this path has started ``number`` times, and return the time of that start."""
    deadline = time.monotonic() + 120
    while len(found := runs(path)) < number:
        if time.monotonic() > deadline:
            raise SystemExit(f"The job has started only {len(found)} times in two minutes.")
        time.sleep(0.01)
    return found[number - 1]


def runs(path: Path) -> list[float]:
    """Return the times at which the job has started."""
    ledger = path.with_suffix(".runs")
    return [float(line) for line in ledger.read_text().split()] if ledger.exists() else []


if __name__ == "__main__":
    main()
