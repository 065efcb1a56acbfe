"""Run a job that has crashed before isolated, in its own process (``worker/isolated.py``).

    job thread --the row--> process --"begun"--> --its progress, each second--> --the outcome--> job thread
                              | dies after "begun": the job crashed it; this counts as a crash
                              | dies before: it could not start; the job is requeued, and no crash is counted

The job thread waits, so an isolated job takes a slot like any other, and its worker's heartbeat covers it.
The rest of the worker is not affected. The process ends with the job, and with its worker: its standard input
is a pipe that the worker holds open, and on which it sends "cancel".
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from time import monotonic

from django.db import OperationalError, connections

from ... import conf
from ...exceptions import TaskTimeout, TooManyCrashes, WorkerLost
from ...formatting import get_logger
from ...jobs.finish import Outcome
from ...postgres.clock import last_heard
from ...tasks.progress import Progress
from ...tasks.retry import exponential
from ..processes.popen import LINGER, START_WITHIN, child_command, child_environment, how_it_ended
from .errors import error_entry, remote_error
from .outcomes import Backoffs, backoff_of
from .progress import Told
from .running_job import RunningJob

logger = get_logger(__name__)

BEGUN = b"begun"
TOLD = b"told "  # and what the job tells, as JSON
LOOK_EVERY = 0.2  # seconds between two checks that the process is alive; its messages are read at once

_CRASHED_SQL = "SELECT pgqueue_crashed_v1(%s, %s, %s, %s, %s, %s)"


class Isolation:
    """Runs isolated jobs for one worker process. Used by many threads at once."""

    def __init__(self, alias: str, worker: int, verbosity: int, databases: str = "") -> None:
        """``databases``: connection parameters that are not in the settings (``settings``)."""
        self._alias = alias
        self._worker = worker
        self._verbosity = verbosity
        self._databases = databases

    def run(
        self, running: RunningJob, backoffs: Backoffs, begin: Callable[[Callable[[], None]], None]
    ) -> Outcome:
        """Run one job to its end. ``begin`` is called when its process has started, with what kills it if it
        still runs after its timeout. Then raise ``TaskTimeout``.
        """
        job_id, was_overdue = running.row.id, False
        reading, writing = os.pipe()
        process = self._start(writing)

        def kill() -> None:
            nonlocal was_overdue
            if process.returncode is None:  # otherwise another process may have its number
                was_overdue = True
                _kill(process)

        try:
            logger.info("job %s has crashed before and runs isolated in process %s", job_id, process.pid)
            _tell(process, self._assignment(running, backoffs))
            running.on_stop = partial(_tell, process, b"cancel\n")
            # Race: the job may have been asked to stop before on_stop was set.
            if running.asked_to_stop:
                running.on_stop()
            said = _listen(reading, process, partial(begin, kill), running.progress.hear)
            if len(said) == 2:
                with suppress(subprocess.TimeoutExpired):  # its exit handlers may need some time
                    process.wait(LINGER)
        finally:
            os.close(reading)
            _kill(process)
            process.wait()
            with suppress(OSError):  # data that it has not read is not needed
                process.stdin.close()  # type: ignore[union-attr]
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
            return Outcome(job_id, running.row.lease, "release", delay=30.0, reason=reason)
        return self._crashed(running, how, backoffs)

    def _start(self, writing: int) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(
                child_command("isolated", str(os.getpid()), str(writing)),
                stdin=subprocess.PIPE,
                env=child_environment(),
                pass_fds=[writing],
                process_group=0,  # so that the processes that it starts end with it
            )
        finally:
            os.close(writing)

    def _assignment(self, running: RunningJob, backoffs: Backoffs) -> bytes:
        given = [
            self._alias, self._worker, self._verbosity, self._databases, backoffs, running.row,
            last_heard(self._alias),
        ]  # fmt: skip
        return json.dumps(given).encode() + b"\n"

    def _crashed(self, running: RunningJob, how: str, backoffs: Backoffs) -> Outcome:
        row, settings = running.row, conf.current()
        delay = exponential(row.crash_count, *backoff_of(row.queue_name, backoffs))
        reason = f"its process ended with {how}"
        try:
            with connections[self._alias].cursor() as cursor:
                cursor.execute(
                    _CRASHED_SQL,
                    [row.id, row.lease, reason, delay, settings.crash_limit, settings.keep_errors],
                )
                (kind,) = cursor.fetchone()
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
        return _in_words(running, outcome) if kind == "failed" else outcome


def _in_words(running: RunningJob, outcome: Outcome) -> Outcome:
    """A crash that is the last one, with what the database has written into the row."""
    row = running.row
    error: Exception
    if row.on_lost == "fail":
        error = WorkerLost(f"{outcome.reason}. The task must not run twice.")
    else:
        crashes = row.crash_count + 1
        error = TooManyCrashes(
            f"{outcome.reason}. Its process has died {crashes} times while it ran, which is the limit."
        )
    entry = error_entry(error, running.worker, row.attempts, conf.current().max_error_bytes)
    return outcome._replace(error=entry, reason=str(error))


def _listen(
    reading: int, process: subprocess.Popen[bytes], begun: Callable[[], None], told: Callable[[Told], None]
) -> list[bytes]:
    """Return the lines that the process has sent when it has finished or died. ``told`` is called with what
    the job tells in the meantime. One that hangs while it starts, before a timeout counts, is killed.

    The end of the pipe does not show this: a process that the task has forked may hold it open forever.
    """
    os.set_blocking(reading, False)
    heard = b""
    start_by = monotonic() + START_WITHIN
    while heard.count(b"\n") < 2:
        ended = process.poll() is not None
        if not ended:
            select.select([reading], [], [], LOOK_EVERY)
        try:
            piece = os.read(reading, 2**16)
        except BlockingIOError:
            piece = b""
        if b"\n" in piece and b"\n" not in heard:
            begun()
        heard = _without_told(heard + piece, told)
        if b"\n" not in heard and monotonic() > start_by:
            start_by = float("inf")
            logger.error(
                "killing process %s, which has not loaded the settings and apps within %g s",
                process.pid,
                START_WITHIN,
            )
            _kill(process)
        if ended and not piece:
            break
        if not piece and not ended:
            # The process has closed its end but still exists: wait instead of polling the pipe.
            with suppress(subprocess.TimeoutExpired):
                process.wait(LOOK_EVERY)
    return heard.split(b"\n")[:-1]


def _without_told(heard: bytes, told: Callable[[Told], None]) -> bytes:
    """Return what was heard without the lines about what the job tells. The last line may be unfinished."""
    if TOLD not in heard:
        return heard
    *lines, rest = heard.split(b"\n")
    for line in lines:
        if line.startswith(TOLD):
            with suppress(ValueError, TypeError):  # the task has written it
                job, lease, step, progress = json.loads(line.removeprefix(TOLD))
                told(Told(job, lease, step, None if progress is None else Progress(*progress)))
    return b"".join(line + b"\n" for line in lines if not line.startswith(TOLD)) + rest


def _ended(line: bytes) -> tuple[Outcome, bool] | None:
    """Return the outcome that a line holds, and whether its row has it already. None if it holds none: the
    task can write to this pipe as well.
    """
    try:
        given, reported = json.loads(line)
        return Outcome(*given), bool(reported)
    except (ValueError, TypeError):
        return None


def _tell(process: subprocess.Popen[bytes], line: bytes) -> None:
    assert process.stdin is not None
    with suppress(BrokenPipeError, ValueError):  # it has ended, which the waiting thread will notice
        process.stdin.write(line)
        process.stdin.flush()


def _kill(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
