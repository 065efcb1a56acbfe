"""One-process mode: jobs run one at a time on the main thread, where a debugger can follow them.

There are no other processes, so there is no supervisor, no isolation of jobs that crash, and nothing that
could stop a job which takes too long. A thread keeps the worker alive (``keeper``).

The first request to stop lets the running job finish. The second one interrupts it, and it goes back to its
queue without counting the attempt, as it does if somebody quits the debugger.
"""

from __future__ import annotations

import logging
import signal
from bdb import BdbQuit
from contextlib import suppress
from time import sleep
from typing import TYPE_CHECKING

from django.db import connections
from psycopg.pq import TransactionStatus

from .. import conf
from ..lifecycle.finish import Outcome
from ..session import LOST_CONNECTION
from .executor import outcomes
from .inline import InlineWorker
from .keeper import Keeper
from .producer.connection import give_back_strangers
from .supervisor.stop_signals import StopSignals
from .waker import Waker

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ..lifecycle.claimed import Claimed
    from .executor.outcomes import Result
    from .executor.progress import Changed
    from .options import WorkerOptions

__all__ = ["DebuggedWorker", "OneProcess"]

logger = logging.getLogger(__name__)

LOOK_EVERY = 0.5  # seconds between two looks for jobs, unless POLL_INTERVAL is shorter
_INTERRUPTED = (KeyboardInterrupt, BdbQuit)


class DebuggedWorker(InlineWorker):
    """Gives a job back that was interrupted, and says so if a job took longer than its timeout."""

    was_interrupted = False
    """Whether the last job was interrupted."""
    is_stopping: Callable[[], bool] = staticmethod(lambda: False)
    """Whether to give up when the outcome of a job cannot be reported, because there is no server."""

    @property
    def changed(self) -> Changed:
        """The running job, while it has something to tell."""
        return self._runner.changed

    def running(self) -> list[int]:
        """Return the job that runs now, if any."""
        return [job.row.id for job in self._runner.running()]

    def cancel(self, job: int) -> None:
        """Ask a job to stop. Safe on any thread."""
        self._runner.cancel(job)

    def _run(self, row: Claimed) -> Result:
        result = super()._run(row)
        if row.timeout is not None and result.ran > row.timeout:
            logger.warning(
                "job %s ran %.0f s, longer than its timeout of %d s, which does not apply here",
                row.id, result.ran, row.timeout,
            )  # fmt: skip
        return result

    def _report(self, result: Result) -> Result:
        failure = result.failure
        if failure is not None and isinstance(failure.error, _INTERRUPTED) and not result.reported:
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
                if self.is_stopping():
                    raise
                logger.warning("job %s has ended, and is reported again: %s", result.row.id, error)
                _close_broken()
                sleep(LOOK_EVERY)

    def mend(self) -> None:
        """After a connection was lost, requeue what was claimed, but whose answer was lost with it."""
        _close_broken()
        give_back_strangers(self.session, self.worker, ())


class OneProcess:
    """Runs jobs until told to stop; in a burst, until no job is due. Must be used on the main thread.

    ``notify`` is called with the messages for the user who stops the command.
    """

    def __init__(self, options: WorkerOptions, notify: Callable[[str], None]) -> None:
        self.options = options
        self._notify = notify
        self._waker = Waker()
        self._signals = StopSignals(self._asked)
        self._keeper = Keeper(
            options,
            begun=lambda: self._worker.running(),
            on_cancel=lambda job: self._worker.cancel(job),
            on_drain=self.stop,
        )
        self._worker = DebuggedWorker(
            options.alias,
            queues=options.queues,
            exclude_queues=options.exclude_queues,
            worker=self._keeper.worker,
        )
        self._worker.is_stopping = lambda: self._is_over
        self._keeper.write_progress_of(self._worker.changed)
        self._is_over = False

    @property
    def interrupted_by(self) -> signal.Signals | None:
        """The last signal that requested a stop; None if there was none."""
        return self._signals.last

    def stop(self) -> None:
        """End after the running job. Safe on any thread."""
        self._is_over = True
        self._waker.interrupt()

    def run(self, check: Callable[[], None]) -> None:
        """Run until stopped. ``check`` is called once the server is there. Raise what it raises, and
        ``psycopg.OperationalError`` if there is no server at the start.
        """
        self._signals.catch(signal.SIGTERM, signal.SIGINT)
        try:
            self._keeper.start(check)
            self._work()
        except KeyboardInterrupt:
            pass  # the job was given back
        finally:
            self._keeper.stop()
            self._signals.release()
            self._waker.close()

    def _work(self) -> None:
        pause = min(LOOK_EVERY, conf.current().shortest_poll)
        is_lost = False
        while not self._is_over:
            try:
                if is_lost:
                    self._worker.mend()
                    is_lost = False
                is_idle = self._worker.run_next() is None
                if self._is_over or self._worker.was_interrupted:
                    break
            except LOST_CONNECTION as error:
                logger.warning("the connection to the database is lost; trying again: %s", error)
                is_idle = is_lost = True
            else:
                if is_idle and self.options.burst:
                    break
            _close_broken()
            if is_idle:
                self._waker.sleep(pause, lambda: self._is_over)
        with suppress(*LOST_CONNECTION):
            self._worker.close()

    def _asked(self) -> None:
        """A signal has asked for a stop. This is called in its handler."""
        jobs = self._worker.running()
        if self._signals.count > 1 and jobs:
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
