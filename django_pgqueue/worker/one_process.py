"""One-process mode: jobs run one at a time on the main thread, where a debugger can follow them.

There are no other processes, so there is no supervisor, no isolation of jobs that crash, and nothing that
could stop a job which takes too long. A thread keeps the worker alive.

The first request to stop lets the running job finish. The second one interrupts it, and it goes back to its
queue without counting the attempt, as it does if the developer quits the debugger.
"""

from __future__ import annotations

import signal
from bdb import BdbQuit
from collections.abc import Callable
from contextlib import suppress
from threading import Thread
from time import monotonic, sleep
from typing import Any

import psycopg
from django.db import connections
from psycopg.pq import TransactionStatus

from .. import conf
from ..exceptions import PgQueueError
from ..formatting import get_logger
from ..jobs.claim import Claimed
from ..jobs.finish import Outcome
from ..models import Job
from ..models.changes import run_now
from ..postgres import sql_of
from ..postgres.clock import server_now
from ..postgres.session import LOST_CONNECTION, Session
from ..tasks.links import public_id
from .executor import outcomes
from .executor.outcomes import Result
from .executor.progress import WRITE_EVERY
from .inline import InlineWorker
from .options import WorkerOptions, new_id
from .sessions import Registration, requeue_strangers
from .supervisor.heartbeat import Heartbeat
from .waker import StopSignals, Waker

logger = get_logger(__name__)

LOOK_EVERY = 0.5  # seconds between two polls for jobs, unless POLL_INTERVAL is shorter
_INTERRUPTED = (KeyboardInterrupt, BdbQuit)


class DebuggedWorker(InlineWorker):
    """Gives a job back that was interrupted, and says so if a job took longer than its timeout."""

    was_interrupted = False  # in its last job
    is_stopping = False  # whether to give up when the outcome of a job cannot be reported without a server

    def _run(self, row: Claimed) -> Result:
        result = super()._run(row)
        if row.timeout is not None and result.ran > row.timeout:
            logger.warning(
                "job %s ran %.0f s, longer than its timeout of %d s, which does not apply here",
                row.id, result.ran, row.timeout,
            )  # fmt: skip
        return result

    def _report(self, result: Result) -> Result:
        if isinstance(result.error, _INTERRUPTED) and not result.reported:
            self.was_interrupted = True
            row = result.row
            outcome = Outcome(row.id, row.lease, "release", reason="it was interrupted")
            if row.on_lost == "fail":  # it must not run twice
                outcome = outcomes.stopped(row, self.worker)
            result = result._replace(outcome=outcome)
        while True:
            try:
                return super()._report(result)
            except LOST_CONNECTION as error:
                if self.is_stopping:
                    raise
                logger.warning("job %s has ended, and is reported again: %s", result.row.id, error)
                _close_broken()
                sleep(LOOK_EVERY)


class OneProcess:
    """Runs jobs until asked to stop; in a burst, until no job is due. Must be used on the main thread.

    ``notify`` is called with the messages for the user who stops the command.
    """

    def __init__(self, options: WorkerOptions, notify: Callable[[str], None]) -> None:
        self.options = options
        self._notify = notify
        self._waker = Waker()
        self.signals = StopSignals(self._asked)
        self._worker = DebuggedWorker(
            options.alias, queues=options.queues, exclude_queues=options.exclude_queues
        )
        self._keeper = LeaseKeeper(options, self._worker, on_drain=self.stop)

    def stop(self) -> None:
        """End after the running job. Safe on any thread."""
        self._worker.is_stopping = True
        self._waker.interrupt()

    def run(self, check: Callable[[], None]) -> None:
        """Run until stopped. ``check`` is called once the server is there. Raise what it raises, and
        ``psycopg.OperationalError`` if there is no server at the start.
        """
        self.signals.catch(signal.SIGTERM, signal.SIGINT)
        try:
            if self._keeper.start(check, self._sleep, lambda: self._worker.is_stopping):
                self._work()
        except KeyboardInterrupt:
            pass  # the job was given back
        finally:
            self._keeper.stop()
            self.signals.release()
            self._waker.close()

    def _work(self) -> None:
        pause = min(LOOK_EVERY, conf.current().shortest_poll)
        worker, is_lost = self._worker, False
        while not worker.is_stopping:
            try:
                if is_lost:  # what was claimed, but whose answer was lost with the connection
                    requeue_strangers(worker.session, worker.worker, ())
                    is_lost = False
                is_idle = worker.run_next() is None
                if worker.was_interrupted or (is_idle and self.options.burst):
                    break
            except LOST_CONNECTION as error:
                logger.warning("the connection to the database is lost; trying again: %s", error)
                is_idle = is_lost = True
            _close_broken()
            if is_idle:
                self._sleep(pause)
        with suppress(*LOST_CONNECTION):
            worker.close()

    def _sleep(self, seconds: float) -> None:
        self._waker.sleep(seconds, lambda: self._worker.is_stopping)

    def _asked(self) -> None:
        """A signal has asked for a stop. This is called in its handler."""
        jobs = self._keeper.jobs.begun()
        if self.signals.count > 1 and jobs:
            raise KeyboardInterrupt
        self.stop()
        if jobs:
            self._notify(
                f"Stopping when job {jobs[0]} has finished. The next signal (Ctrl-C) interrupts it, and it "
                "goes back to its queue."
            )


def _close_broken() -> None:
    """Close the connections that the last job has left broken, or in a transaction."""
    for each in connections.all(initialized_only=True):
        raw: Any = each.connection
        if raw is None or each.vendor != "postgresql":
            continue
        if raw.closed or raw.pgconn.transaction_status != TransactionStatus.IDLE:
            each.close()


class CannotRun(PgQueueError):
    """The job does not wait, or something else prevents it from being run."""


def run_job(pk: int, alias: str) -> Result:
    """Run a waiting job now, on this thread, where a debugger can follow it, and return its result.

    It is claimed as a worker would claim it, with a lease, so no other worker runs it at the same time. It
    does not matter whether its queue is paused, or when it was to run. Raise ``CannotRun``, with the reason,
    if it does not wait or must not start.
    """
    job = Job.objects.using(alias).filter(pk=pk).first()
    if job is None:
        raise CannotRun(f"There is no job {pk} in the database {alias!r}.")
    if job.status not in (Job.Status.PENDING, Job.Status.RETRY):
        raise CannotRun(_why_not(job))
    options = WorkerOptions(alias=alias, queues=(job.queue_name,), threads=1, burst=True, schedules=False)
    worker = DebuggedWorker(alias)
    keeper = LeaseKeeper(options, worker, on_drain=lambda: None)  # it ends after this job in any case
    try:
        keeper.start(lambda: None)
        if job.run_after > server_now(alias):
            run_now(job)
        if (result := worker.run_if_due(pk, if_paused=True)) is None:
            raise CannotRun(_why_not(Job.objects.using(alias).get(pk=pk)))
        return result
    finally:
        keeper.stop()


def _why_not(job: Job) -> str:
    """Return why a job cannot be run, and what to do."""
    what = f"Job {job.pk} ({job.task_path}) cannot be run here:"
    if job.status == Job.Status.RUNNING:
        return f"{what} a worker runs it now."
    if job.status == Job.Status.BLOCKED:
        return f"{what} it is blocked ({job.waiting_reason})."
    if job.status in (Job.Status.PENDING, Job.Status.RETRY):
        return f"{what} another transaction has locked it, or its queue has reached a limit."
    public = public_id(job.pk, job._state.db)  # the number alone may be another job
    done = ", done=True" if job.status == Job.Status.DONE else ""
    again = f"retry({job.pk if public == str(job.pk) else repr(public)}{done})"
    return f"{what} it is finished ({job.status}). First: {again}"


# Keeps a worker alive whose jobs run on the main thread of this process, which a debugger may stop. It has a
# thread and a connection of its own. It registers the worker, sends its heartbeats, does the maintenance that
# a supervisor does, and passes to the main thread the requests to cancel a job or to end, so a job that is
# stopped at a breakpoint keeps its lease, however long the developer looks at it. A debugger that stops all
# threads, as that of VS Code does, leaves threads alone that are marked as its own.

_ASKED_SQL = sql_of(__file__, "asked")


class LeaseKeeper:
    """Keeps ``worker`` alive, in place of a supervisor. ``on_drain``: called on its thread if it must end."""

    lives = True

    def __init__(
        self, options: WorkerOptions, worker: DebuggedWorker, *, on_drain: Callable[[], None]
    ) -> None:
        self.worker = worker.worker
        self.jobs = worker.runner.started_jobs
        self._runner = worker.runner
        self._on_drain = on_drain
        self._registration = Registration(options, self.worker, new_id())
        self._heartbeat = Heartbeat(options)
        self._registered_in: Session | None = None
        self._waker = Waker()
        self._is_over = False
        self._thread = Thread(target=self._keep, name="pgqueue-keeper", daemon=True)
        # What pydevd looks at, on which the debuggers of VS Code and PyCharm are built.
        self._thread.pydev_do_not_trace = True  # type: ignore[attr-defined]
        self._thread.is_pydev_daemon_thread = True  # type: ignore[attr-defined]

    def start(
        self,
        check: Callable[[], None],
        wait: Callable[[float], None] = sleep,
        stopped: Callable[[], bool] = lambda: False,
    ) -> bool:
        """Register the worker, and keep it alive from now on. ``check`` is called once the server is there.
        Return False if ``stopped`` returns True before that.

        Raise what ``check`` raises, and ``psycopg.Error`` if the server cannot be used.
        """
        if not self._heartbeat.start(check, wait, stopped):
            return False
        assert self._heartbeat.session is not None
        self._register(self._heartbeat.session)
        self._thread.start()
        return True

    def stop(self) -> None:
        """Sign off. Jobs that the worker still holds are recovered by others."""
        self._is_over = True
        self._waker.interrupt()
        if self._thread.is_alive():
            self._thread.join()
        try:
            if self._heartbeat.session is not None and self._thread.ident is not None:  # it was registered
                self._registration.unregister(self._heartbeat.session)
        except psycopg.Error as error:
            logger.warning("the worker could not sign off: %s", error)
        self._heartbeat.close()
        self._waker.close()

    def _keep(self) -> None:
        while not self._is_over:
            children: Any = [self]
            self._heartbeat.serve(children)
            self._serve()
            now = monotonic()
            pause = min(self._heartbeat.seconds_left(now), conf.current().heartbeat)
            if self.jobs.begun():
                pause = min(pause, WRITE_EVERY, self._runner.progress.seconds_left(now))
            self._waker.sleep(pause, lambda: self._is_over, *self._heartbeat.files)

    def _serve(self) -> None:
        session = self._heartbeat.session
        if session is None:
            return
        try:
            if session is not self._registered_in or self._registration.due(monotonic()):
                self._register(session)
            for asked_to_end, cancelled in session.rows(_ASKED_SQL, (self.worker,)):
                for job in cancelled:
                    self._runner.cancel(job)
                if asked_to_end:
                    self._on_drain()
            self._runner.progress.write_if_due(session, monotonic())
        except psycopg.Error as error:
            self._heartbeat.lost(error)

    def _register(self, session: Session) -> None:
        self._registration.renew(session, monotonic(), "SELECT 1", None)
        self._registered_in = session
        self.jobs.registered, self.jobs.holds_lock = True, session.holds_lock
