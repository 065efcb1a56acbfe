"""What the processes of a worker use: CPU time and memory."""

from __future__ import annotations

import json
import threading
import time
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from types import TracebackType

    from .contender import Contender, Workers

__all__ = ["Peak", "bare_django", "cpu_seconds", "megabytes", "supervisor_and_process"]

LOOK_SECONDS = 0.02


def supervisor_and_process(workers: Workers) -> tuple[psutil.Process, psutil.Process]:
    """Return the two processes of a worker command with ``--processes 1``, once there are two."""
    supervisor = psutil.Process(workers.processes[0].pid)
    while not (children := supervisor.children()):
        workers.check()
        time.sleep(LOOK_SECONDS)
    (process,) = children
    return supervisor, process


def cpu_seconds(process: psutil.Process) -> float:
    """Return the CPU time that the process has used so far."""
    times = process.cpu_times()
    return float(times.user + times.system)


def megabytes(process: psutil.Process) -> float:
    """Return the resident memory of the process."""
    return float(process.memory_info().rss) / 2**20


def bare_django(contender: Contender) -> float:
    """Return the megabytes of a process that has set up Django, without our app, and has run a query."""
    with contender.program("benchmarks.bare_django") as program:
        assert program.stdout is not None
        return float(json.loads(program.stdout.readline()))


class Peak:
    """The highest resident memory of a process while the context is entered, looked at 50 times a second."""

    def __init__(self, process: psutil.Process) -> None:
        self._process = process
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self.megabytes = 0.0

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            try:
                self.megabytes = max(self.megabytes, megabytes(self._process))
            except psutil.Error:  # it has ended, which the benchmark itself notices
                return
