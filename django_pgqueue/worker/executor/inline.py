"""Run jobs on the calling thread and its own connections: for tests, and for a process with one thread.

What is missing is what needs another thread or process: timeouts, and the isolation of jobs that have
crashed. The connections are not tidied up, because they belong to the caller.
"""

from __future__ import annotations

from contextvars import copy_context
from time import monotonic
from typing import TYPE_CHECKING

from asgiref.sync import async_to_sync

from ..processes.started_jobs import StartedJobs
from .outcomes import Result
from .outer_transaction import is_open, run_callbacks, savepoints
from .runner import Runner
from .task_signals import Announcer

if TYPE_CHECKING:
    from ...lifecycle.claimed import Claimed
    from ...lifecycle.finish import Outcome
    from .running_job import RunningJob

__all__ = ["InlineRunner"]


class InlineRunner(Runner):
    """Runs one job at a time."""

    _enforces_timeouts = False

    def __init__(self, alias: str, worker: int) -> None:
        super().__init__(alias, worker, Announcer(), StartedJobs.private(1))

    def perform_here(self, row: Claimed) -> Result:
        """Run a claimed job, sync or async, and return its result. An error of the worker is raised."""
        ready = self._prepare(row)
        if isinstance(ready, Result):
            return ready
        ready.in_outer_transaction = is_open(self.alias)
        self._begin(ready)
        try:
            outcome = self._perform(ready)
        finally:
            self._end(ready)
            self._started_jobs.end(row.id)
        last = None if ready.told is None else ready.told.last
        return Result(row, outcome, monotonic() - ready.started, ready.reported, ready.take_failure(), last)

    def _perform(self, running: RunningJob) -> Outcome:
        try:
            with savepoints():
                copy_context().run(self._run_body, running)
        except BaseException as error:  # a callback raised it, or the transaction is broken
            if running.outcome is None:
                raise  # a bug of the worker
            if running.outcome.kind not in {"failed", "retry"} and not running.reported:
                running.outcome = self._failed(running, error)
        assert running.outcome is not None
        return running.outcome

    def _run_body(self, running: RunningJob) -> None:
        with run_callbacks():
            if running.row.task_path in self._async_paths:
                # The ORM work of the coroutine comes back to this thread, and so to its connections.
                async_to_sync(self.run_async)(running)
            else:
                running.outcome = self._call(running)
