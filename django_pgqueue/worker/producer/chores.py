"""What a pump does now and then besides moving jobs: figures, settings of queues, cancels that got lost."""

from __future__ import annotations

import random
from time import monotonic
from typing import TYPE_CHECKING

from ... import conf
from .. import registry
from .stats import STAT_SQL, Counter

if TYPE_CHECKING:
    from ...session import Session
    from ..executor.runner import Runner
    from ..options import WorkerOptions
    from .notifier import Listener

__all__ = ["Chores"]

REGISTER_EVERY = 10.0  # seconds; after two of these at most a deaf listener is found: it must be below 15

_QUEUE_SETTINGS_SQL = """
    SELECT name, backoff_base, backoff_ceiling FROM pgqueue_queue
    WHERE coalesce(backoff_base, backoff_ceiling) IS NOT NULL
"""
_CANCELS_SQL = """
    SELECT id FROM pgqueue_job_live WHERE id = ANY (%s::bigint[]) AND cancel_requested_at IS NOT NULL
"""


class Chores:
    """The chores of one pump, each with its own time."""

    def __init__(
        self, options: WorkerOptions, worker: int, supervisor: int, runner: Runner, listener: Listener
    ) -> None:
        self.counter = Counter()
        self._options = options
        self._worker = worker
        self._supervisor = supervisor
        self._runner = runner
        self._listener = listener
        self._next_settings = 0.0
        self._next_cancels = 0.0

    def before_work(self, session: Session, now: float) -> None:
        """What must be known before a job runs: how the queues want retries to be spaced.

        The worker also says anew who it is. One that stood still for long counts as dead and is struck off,
        and the jobs of one that is not on the list would never be recovered. And it proves that it hears.
        """
        if now < self._next_settings:
            return
        (rows, *_) = session.run((_QUEUE_SETTINGS_SQL, None), *self._listener.prove(now))
        self._runner.backoffs = {name: (base, ceiling) for name, base, ceiling in rows}
        registry.register(session, self._worker, self._supervisor, self._options)
        # Race: one that stood still for a lease may be struck off. It registers before it claims again, so
        # that it never is on its way out with a job that it has just claimed.
        self._next_settings = now + min(REGISTER_EVERY, conf.current().lease / 3) * random.uniform(0.9, 1.1)

    def after_work(self, session: Session, now: float) -> None:
        """What can wait until the jobs are on their way."""
        if self.counter.due(now):
            self.flush(session)
        if now >= self._next_cancels:
            self._next_cancels = now + conf.current().poll_interval
            self._look_for_cancels(session, now)

    def flush(self, session: Session) -> None:
        """Add what was counted to the table of statistics."""
        session.run((STAT_SQL, self.counter.take(monotonic())))

    def _look_for_cancels(self, session: Session, now: float) -> None:
        """For notifications that got lost, and behind a pooler, where there are none."""
        interval = conf.current().poll_interval
        ids = [running.row.id for running in self._runner.running() if now - running.started > interval]
        if ids:
            (rows,) = session.run((_CANCELS_SQL, (ids,)))
            for (job_id,) in rows:
                self._runner.cancel(job_id)
