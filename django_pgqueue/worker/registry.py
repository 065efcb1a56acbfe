"""The worker's entry in the table of workers, and the lock that says that its process lives."""

from __future__ import annotations

import os
import random
import socket
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from .. import conf

if TYPE_CHECKING:
    from ..session import Session
    from .options import WorkerOptions

__all__ = ["Registration"]

REGISTER_EVERY = 10.0  # seconds; after two of these at most a deaf session is found: it must be below 15

_REGISTER = """
    INSERT INTO pgqueue_worker (id, host, pid, supervisor, queues, exclude_queues, slots, version, state,
        holds_lock, started_at, heartbeat_at)
    VALUES (%s, %s, %s, %s, %s::text[], %s::text[], %s, %s, 'running', %s, clock_timestamp(),
        clock_timestamp())
    ON CONFLICT (id) DO UPDATE SET heartbeat_at = clock_timestamp(), holds_lock = excluded.holds_lock
"""


class Registration:
    """The entry of one worker process."""

    def __init__(self, options: WorkerOptions, worker: int, supervisor: int) -> None:
        self._options = options
        self._worker = worker
        self._supervisor = supervisor
        self._next = 0.0

    def due(self, now: float) -> bool:
        """Whether it is time to register again.

        A worker that stood still for long counts as dead and is forgotten, and the jobs of one that is not
        on the list would never be recovered.
        """
        return now >= self._next

    def renew(self, session: Session, now: float) -> None:
        """Register, and note when to do it next."""
        self.register(session)
        # Race: one that stood still for a lease may be forgotten. It registers before it claims again, so
        # that it never is on its way out with a job that it has just claimed.
        self._next = now + min(REGISTER_EVERY, conf.current().lease / 3) * random.uniform(0.9, 1.1)

    def register(self, session: Session) -> None:
        """Before the first claim: what a lease names must be there.

        On a direct path it holds the worker's advisory lock first: that falls with the session, so with the
        process. Race: after a reconnect the old session may still hold it, since the server has not noticed
        its end. Then the worker says so, and takes it the next time: a free lock must never be a living
        worker's.
        """
        self._take_lock(session)
        options = self._options
        parameters = (
            self._worker, socket.gethostname()[:255], os.getpid(), self._supervisor, list(options.queues),
            list(options.exclude_queues), options.threads, _version(), session.holds_lock,
        )  # fmt: skip
        session.run((_REGISTER, parameters))

    def set_draining(self, session: Session) -> None:
        """Show that the worker takes no more jobs."""
        session.run(("UPDATE pgqueue_worker SET state = 'draining' WHERE id = %s", (self._worker,)))

    def sign_off(self, session: Session) -> None:
        """The worker has ended. If it holds a job all the same, it stays listed, so that it is found dead."""
        session.run(("SELECT pgqueue_forget_workers_v1(%s::bigint[])", ([self._worker],)))

    def _take_lock(self, session: Session) -> None:
        """Once for each session: advisory locks are counted."""
        if not session.pooled and not session.holds_lock:
            lock = "SELECT pg_try_advisory_lock(pgqueue_lock_key_v1('worker', %s))"
            session.holds_lock = session.value(lock, (str(self._worker),))


def _version() -> str:
    try:
        return version("dj-pgqueue")
    except PackageNotFoundError:  # run from a checkout that is not installed
        return "unknown"
