"""The worker's entry in the table of workers, and the lock that says that its process lives."""

from __future__ import annotations

import os
import socket
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..session import Session
    from .options import WorkerOptions

__all__ = ["register", "set_draining", "unregister"]

_REGISTER = """
    INSERT INTO pgqueue_worker (id, host, pid, supervisor, queues, slots, version, state, holds_lock,
        started_at, heartbeat_at)
    VALUES (%s, %s, %s, %s, %s::text[], %s, %s, 'running', %s, clock_timestamp(), clock_timestamp())
    ON CONFLICT (id) DO UPDATE SET heartbeat_at = clock_timestamp(), holds_lock = excluded.holds_lock
"""


def register(session: Session, worker: int, supervisor: int, options: WorkerOptions) -> None:
    """Before the first claim: what a lease names must be there. Done again now and then.

    On a direct path it holds the worker's advisory lock first: that falls with the session, so with the
    process. Race: after a reconnect the old session may still hold it, since the server has not noticed its
    end. Then the worker says so, and takes it the next time: a free lock must never be a living worker's.
    """
    _take_lock(session, worker)
    parameters = (
        worker, socket.gethostname()[:255], os.getpid(), supervisor, list(options.queues), options.threads,
        _version(), session.holds_lock,
    )  # fmt: skip
    session.run((_REGISTER, parameters))


def set_draining(session: Session, worker: int) -> None:
    """Show that the worker takes no more jobs."""
    session.run(("UPDATE pgqueue_worker SET state = 'draining' WHERE id = %s", (worker,)))


def unregister(session: Session, worker: int) -> None:
    """The worker has ended. If it holds a job all the same, it stays listed, so that it is found dead."""
    session.run(("SELECT pgqueue_strike_off_v1(%s::bigint[])", ([worker],)))


def _take_lock(session: Session, worker: int) -> None:
    """Once for each session: advisory locks are counted."""
    if not session.pooled and not session.holds_lock:
        lock = "SELECT pg_try_advisory_lock(pgqueue_key_v1('worker', %s))"
        session.holds_lock = session.value(lock, (str(worker),))


def _version() -> str:
    try:
        return version("dj-pgqueue")
    except PackageNotFoundError:  # run from a checkout that is not installed
        return "unknown"
