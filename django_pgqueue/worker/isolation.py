"""Run a job that has crashed before isolated, in its own process.

    job thread --the row--> process --"begun"--> --its progress, each second--> --the outcome--> job thread
                              | dies after "begun": the job crashed it; this counts as a crash
                              | dies before: it could not start; the job is requeued, and no crash is counted

The job thread waits, so an isolated job takes a slot like any other, and its worker's heartbeat covers it.
The rest of the worker is not affected. The process ends with the job, and with its worker: its standard input
is a socket that the worker holds open, and on which it sends "cancel".
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from threading import Thread
from time import monotonic

from django.db import DatabaseError, OperationalError, connections

from .. import conf
from ..exceptions import TaskTimeout, TooManyCrashes, WorkerLost
from ..formatting import get_logger
from ..jobs.claim import Claimed
from ..jobs.finish import Outcome
from ..maintenance.recovery import KEEP_STACKS_SQL
from ..postgres import aliases, fetch_value, sql_of
from ..postgres.clock import heard, last_heard
from ..tasks.progress import Progress
from ..tasks.retry import exponential
from . import spawn
from .executor import fork
from .executor.errors import error_entry, remote_error
from .executor.outcomes import Backoffs, backoff_of
from .executor.progress import WRITE_EVERY
from .executor.runner import Runner
from .executor.running_job import RunningJob
from .executor.stacks import WRITE_SQL, stack_of
from .executor.threads import Executor
from .logs import configure_logging
from .spawn import LINGER, START_WITHIN, how_it_ended, take_standard_input
from .started_jobs import StartedJobs
from .waker import Waker

logger = get_logger(__name__)

REPORT = b"report "  # and what the job reports, as JSON
STACK = b"stack "  # and what its task does now, as JSON
LOOK_EVERY = 0.2  # seconds between two checks that the process is alive; its messages are read at once

# Its worker lives, and only this process ended. A crash is always notable.
CRASHED_SQL = sql_of(__file__, "crashed")


def run(
    verbosity: int,
    databases: str,
    running: RunningJob,
    backoffs: Backoffs,
    begin: Callable[[Callable[[], None]], None],
) -> Outcome:
    """Run one job to its end. ``begin`` is called when its process has started, with what kills it after its
    timeout. Then raise ``TaskTimeout``. ``databases``: connection parameters that the settings do not have.
    """
    row, was_overdue = running.row, False
    ours, theirs = socket.socketpair()
    memory = StartedJobs.create(1)
    with theirs:
        process = spawn.start("isolated", theirs, memory.file)

    def kill() -> None:
        nonlocal was_overdue
        if process.returncode is None:  # otherwise another process may have its number
            was_overdue = True
            _kill(process)

    try:
        logger.info("job %s has crashed before and runs isolated in process %s", row.id, process.pid)
        given = [memory.file, running.alias, running.worker, verbosity, databases, backoffs, row]
        _send(ours, json.dumps([*given, last_heard(running.alias)]))
        running.send = partial(_send, ours)
        # Race: the job may have been asked to stop before its process could be informed.
        if running.asked_to_stop:
            running.send("cancel")
        said = _listen(ours, process, running, partial(begin, kill))
        if len(said) == 2:
            with suppress(subprocess.TimeoutExpired):  # its exit handlers may need some time
                process.wait(LINGER)
    finally:
        _kill(process)
        process.wait()
        ours.close()
        stack = memory.stacks().get(row.id, "")
        memory.close_file()
    if len(said) == 2 and (ended := _ended(said[1])) is not None:
        outcome, running.reported = ended
        if outcome.error is not None:
            running.error = remote_error(outcome.error)
        return outcome
    if was_overdue:
        raise TaskTimeout("the task kept running after its timeout, so its process was killed")
    how = how_it_ended(process.returncode)
    if not said:
        reason = f"its isolated process could not start ({how})"
        return Outcome(row.id, row.lease, "release", delay=30.0, reason=reason)
    return _crashed(running, f"its process ended with {how}", backoffs, stack)


def _crashed(running: RunningJob, reason: str, backoffs: Backoffs, stack: str) -> Outcome:
    """Write the crash, with the ``stack`` of the task if it is known. Return what the job has become."""
    row, settings = running.row, conf.current()
    delay = exponential(row.crash_count, *backoff_of(row.queue_name, backoffs))
    limits = [settings.crash_limit, settings.keep_errors]
    try:
        if stack:
            fetch_value(running.alias, KEEP_STACKS_SQL, running.worker, [row.id], [stack])
        kind = fetch_value(running.alias, CRASHED_SQL, row.id, row.lease, reason, delay, *limits)
    except OperationalError as error:
        if getattr(error.__cause__, "sqlstate", "") != "55P03":  # lock_not_available
            raise
        # Race: another job with its unique key is in a transaction that is still open. The producer can
        # wait for that, this thread cannot. The crash is not counted.
        return Outcome(row.id, row.lease, "release", delay=delay, reason=reason)
    running.reported = True
    outcome = Outcome(row.id, row.lease, kind, started=running.started, reason=reason)
    if kind == "crash":
        return outcome._replace(delay=delay)
    if kind != "failed":
        return outcome
    last: Exception = WorkerLost(f"{reason}. The task must not run twice.")
    if row.on_lost != "fail":
        times = f"{row.crash_count + 1} times while it ran, which is the limit"
        last = TooManyCrashes(f"{reason}. Its process has died {times}.")
    entry = error_entry(last, running.worker, row.attempts)
    return outcome._replace(error=entry, reason=str(last))


def _listen(
    link: socket.socket, process: subprocess.Popen[bytes], running: RunningJob, begin: Callable[[], None]
) -> list[bytes]:
    """Return the lines that the process has sent when it has finished or died, besides its reports and
    stacks. A process that hangs while it starts, before a timeout counts, is killed.

    The end of the stream does not show this: a process that the task has forked may hold it open forever.
    """
    said: list[bytes] = []
    rest = b""
    start_by = monotonic() + START_WITHIN
    while len(said) < 2:
        ended = process.poll() is not None
        piece = b""
        if select.select([link], [], [], 0.0 if ended else LOOK_EVERY)[0]:
            with suppress(ConnectionResetError):  # it has ended before it had read what we sent
                piece = link.recv(2**16)
            if not piece:  # it has closed its end but may still exist
                with suppress(subprocess.TimeoutExpired):
                    process.wait(LOOK_EVERY)
        if ended and not piece:
            break
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            if line.startswith(REPORT):
                with suppress(ValueError, TypeError):  # the task has written it
                    step, progress = json.loads(line.removeprefix(REPORT))
                    running.progress.hear(step, None if progress is None else Progress(*progress))
                continue
            if line.startswith(STACK):
                with suppress(ValueError):
                    _write_stack(running, str(json.loads(line.removeprefix(STACK))))
                continue
            if not said:
                begin()
            said.append(line)
        if not said and monotonic() > start_by:
            start_by = float("inf")
            logger.error(
                "killing process %s, which has not loaded the settings and apps within %g s",
                process.pid, START_WITHIN,
            )  # fmt: skip
            _kill(process)
    return said


def _write_stack(running: RunningJob, stack: str) -> None:
    row = running.row
    try:
        with connections[running.alias].cursor() as cursor:
            cursor.execute(WRITE_SQL, [[row.id], [row.lease], [stack], [row.id]])
    except DatabaseError as error:
        logger.warning("job %s: its stack could not be written: %s", row.id, str(error).strip())


def _ended(line: bytes) -> tuple[Outcome, bool] | None:
    """Return the outcome in a line, and whether its row has it; None if it is none: a task may write, too."""
    try:
        given, reported = json.loads(line)
        return Outcome(*given), bool(reported)
    except (ValueError, TypeError):
        return None


def _send(link: socket.socket, line: str) -> None:
    with suppress(OSError):  # the other end is gone, which its worker will notice
        link.sendall(line.encode() + b"\n")


def _kill(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def main() -> int:
    """Run the job that standard input describes, and write its outcome there."""
    link = socket.socket(fileno=take_standard_input())
    commands = link.makefile("rb")
    file, alias, worker, verbosity, databases, backoffs, row, report = json.loads(
        commands.readline() or "null"
    )
    configure_logging(verbosity)
    if databases:
        aliases.apply(databases)
    fork.prepare(lambda: [link.fileno(), file])
    runner = Runner(alias, worker, StartedJobs.inherited(file))
    runner.outcomes.backoffs = {name: (base, ceiling) for name, (base, ceiling) in backoffs.items()}
    job = Claimed(*row)
    if report is not None:
        heard(alias, *report)

    def obey() -> None:
        """Follow the worker's commands, and exit when the worker ends."""
        with suppress(OSError):
            while command := commands.readline():
                while (running := runner.running.get(job.id)) is None:  # it has not started yet
                    time.sleep(0.05)
                if command == b"stack\n":
                    _send(link, STACK.decode() + json.dumps(stack_of(running)))
                else:
                    runner.cancel(job.id)
        os._exit(1)

    Thread(target=obey, name="pgqueue-worker-watch", daemon=True).start()
    _send(link, "begun")
    waker = Waker()
    executor = Executor(runner, 1, waker)
    executor.submit([job], job_seconds=1.0)
    while not executor.results:
        waker.sleep(WRITE_EVERY, lambda: bool(executor.results))
        for each in runner.progress.take():
            _send(link, REPORT.decode() + json.dumps(each.take()))
    executor.stop()
    executor.join(1.0)
    ((result,),) = executor.results
    _send(link, json.dumps([result.outcome, result.reported]))
    return 0
