"""How soon a job that had begun runs again after a death: ``python -m benchmarks.recovery``.

Like ``benchmarks.road``: a durable server, real processes, default settings, medians of several runs. Each
time is from the signal to the first statement of the task's second run, by the machine's monotonic clock:

    process      a worker process gets SIGKILL
    supervisor   a supervisor gets SIGKILL, another one runs
    all          a supervisor and its process get SIGKILL, the next command is started at once
    stopped      a worker process gets SIGSTOP, another one runs: its lease must run out
    server       the server is restarted; until the surviving worker runs a new job (not with DATABASE_URL)
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
    """Measure everything and print it."""
    has_own_server = not os.environ.get("DATABASE_URL")
    set_up()
    measure("process", process_killed)
    measure("supervisor", supervisor_killed)
    measure("all", all_killed)
    measure("stopped", process_stopped)
    if has_own_server:
        measure("server", server_restarted)


def measure(name: str, scene: Callable[[ExitStack, Path], float]) -> None:
    """Play a scene several times."""
    seconds = []
    for _ in range(RUNS):
        empty()
        with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
            path = Path(folder) / "job"
            try:
                seconds.append(scene(stack, path))
            finally:
                path.touch()  # what runs may end, and then the workers
    print(f"{name}: {statistics.median(seconds):.2f} s ({min(seconds):.2f} to {max(seconds):.2f})")


def process_killed(stack: ExitStack, path: Path) -> float:
    """Its supervisor sees it die."""
    begin(stack, path)
    killed = kill(pid_of_worker())
    return run(path, 2) - killed


def supervisor_killed(stack: ExitStack, path: Path) -> float:
    """Another supervisor misses its heartbeat."""
    worker = begin(stack, path)
    stack.enter_context(command())
    wait_for("SELECT count(*) = 2 FROM pgqueue_worker")
    killed = kill(worker.pid)
    return run(path, 2) - killed


def all_killed(stack: ExitStack, path: Path) -> float:
    """The next supervisor misses the heartbeat of the last."""
    worker = begin(stack, path)
    killed = kill(worker.pid, pid_of_worker())
    stack.enter_context(command())
    return run(path, 2) - killed


def process_stopped(stack: ExitStack, path: Path) -> float:
    """It exists and holds its lock, but nobody beats for it."""
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
    """The worker looks for the server until it is back."""
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
        raise SystemExit("the restart of the server has taken a job from a worker that lives")
    return seconds


def begin(stack: ExitStack, path: Path) -> subprocess.Popen[bytes]:
    """A worker that runs a job, which ends when `path` exists."""
    from benchmarks.tasks import hold
    from django_pgqueue import enqueue

    worker = stack.enter_context(command())
    enqueue(hold, str(path))
    run(path, 1)
    return worker


@contextmanager
def command() -> Iterator[subprocess.Popen[bytes]]:
    """A worker command for the length of a block, and until it has signed off."""
    worker = run_worker(is_silent=True)
    try:
        yield worker
    finally:
        worker.terminate()
        worker.wait()


def kill(*pids: int) -> float:
    """SIGKILL for all of them; the time of the first."""
    now = time.monotonic()
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:  # it has died with its supervisor
            continue
    return now


def pid_of_worker() -> int:
    """The only worker process."""
    ((pid,),) = rows("SELECT pid FROM pgqueue_worker")
    return int(pid)


def run(path: Path, number: int) -> float:
    """When the job of this path has begun for the first, second, ... time; waits for it."""
    deadline = time.monotonic() + 120
    while len(found := runs(path)) < number:
        if time.monotonic() > deadline:
            raise SystemExit(f"the job has begun only {len(found)} times in two minutes")
        time.sleep(0.01)
    return found[number - 1]


def runs(path: Path) -> list[float]:
    """When the job has begun, each time."""
    ledger = path.with_suffix(".runs")
    return [float(line) for line in ledger.read_text().split()] if ledger.exists() else []


if __name__ == "__main__":
    main()
