"""The process of one isolated job (``executor/isolation.py``): it reads a row and writes an outcome."""

from __future__ import annotations

import json
import os
import time
from threading import Thread
from typing import TYPE_CHECKING

from ..jobs.claim import Claimed
from ..postgres import aliases
from ..postgres.clock import heard
from .executor import fork
from .executor.isolation import BEGUN, TOLD
from .executor.progress import WRITE_EVERY
from .executor.runner import Runner
from .executor.threads import Executor
from .logs import configure_logging
from .processes.parent_link import take_standard_input
from .processes.started_jobs import StartedJobs
from .waker import Waker

if TYPE_CHECKING:
    from .executor.outcomes import Result


def main(writing: int) -> int:
    """Run the job that standard input describes, and write its outcome to the descriptor ``writing``."""
    os.set_inheritable(writing, False)
    line = take_standard_input()
    assignment, rest = _read_line(line)
    alias, worker, verbosity, databases, backoffs, row, told = json.loads(assignment)
    configure_logging(verbosity)
    if databases:
        aliases.apply(databases)
    fork.prepare(lambda: [line, writing])
    runner = Runner(alias, worker, StartedJobs.private(1))
    runner.outcomes.backoffs = {name: (base, ceiling) for name, (base, ceiling) in backoffs.items()}
    job = Claimed(*row)
    if told is not None:
        heard(alias, *told)
    Thread(target=_obey, args=(line, runner, job.id, rest), name="pgqueue-worker-watch", daemon=True).start()
    _say(writing, BEGUN)
    result = _run(runner, job, writing)
    _say(writing, json.dumps([result.outcome, result.reported]).encode())
    return 0


def _run(runner: Runner, job: Claimed, writing: int) -> Result:
    waker = Waker()
    executor = Executor(runner, 1, waker)
    executor.submit([job], job_seconds=1.0)
    while not executor.results:
        waker.sleep(WRITE_EVERY, lambda: bool(executor.results))
        for each in runner.changed.take():
            _say(writing, TOLD + json.dumps(each.take()).encode())
    executor.stop()
    executor.join(1.0)
    ((result,),) = executor.results
    return result


def _read_line(line: int) -> tuple[bytes, bytes]:
    """Return the assignment, which is the first line, and what arrived after it."""
    heard = b""
    while b"\n" not in heard:
        piece = os.read(line, 2**16)
        if not piece:
            os._exit(1)
        heard += piece
    assignment, _, rest = heard.partition(b"\n")
    return assignment, rest


def _obey(line: int, runner: Runner, job_id: int, heard: bytes) -> None:
    """Follow the worker's commands, of which "cancel" is the only one, and exit when the worker ends."""
    while heard or (heard := os.read(line, 1024)):
        heard = b""
        while not runner.cancel(job_id):  # the job may not have started yet
            time.sleep(0.05)
    os._exit(1)


def _say(writing: int, line: bytes) -> None:
    data = memoryview(line + b"\n")
    while data:
        data = data[os.write(writing, data) :]
