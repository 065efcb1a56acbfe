"""The worker's entry in the table of workers, and the lock which shows that its process is alive."""

from __future__ import annotations

import os
import random
import socket
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

from .. import conf

if TYPE_CHECKING:
    from ..postgres.session import Session
    from .options import WorkerOptions

REGISTER_EVERY = 10.0  # seconds; a deaf session is found after at most two of these, so keep it below 15
END_WITHIN = 2.0  # seconds until a session that was told to end has ended, unless its server is very slow
_REGISTER = """
    INSERT INTO pgqueue_worker (id, host, pid, supervisor, queues, exclude_queues, slots, version, state,
        holds_lock, memory, lost, started_at, heartbeat_at)
    VALUES (%s, %s, %s, %s, %s::text[], %s::text[], %s, %s, 'running', %s, %s, %s, clock_timestamp(),
        clock_timestamp())
    ON CONFLICT (id) DO UPDATE SET heartbeat_at = clock_timestamp(), holds_lock = excluded.holds_lock,
        memory = excluded.memory, lost = excluded.lost
"""
# A single statement (``Session.run``).
_RENEW = "WITH registered AS (" + _REGISTER + " RETURNING {proof}) {query}"
_END_SQL = "SELECT pgqueue_end_sessions_v1(%s::bigint[])"
_PROOF = "pg_notify(pgqueue_channel_v1(), %s)::text"


class Registration:
    """The entry of one worker process in the table."""

    def __init__(self, options: WorkerOptions, worker: int, supervisor: int) -> None:
        self._options = options
        self._worker = worker
        self._supervisor = supervisor
        self._next = 0.0
        self._lost = 0
        self._asked_by: Session | None = None
        """The session that has asked the server to end the one before."""

    def tell(self, lost: int) -> None:
        """Register again at once if another number of slots is taken by ``lost`` jobs."""
        if lost != self._lost:
            self._lost, self._next = lost, 0.0

    def due(self, now: float) -> bool:
        """Return whether it is time to register again.

        A worker that was suspended for a long time counts as dead and is removed from the table. The jobs of
        a worker that is not in the table would never be recovered.
        """
        return now >= self._next

    def renew(self, session: Session, now: float, query: str, proof: str | None) -> list[Any]:
        """Register, and note when to do so next. Return the rows of ``query``, which has no parameters.

        ``proof``: what the worker sends to itself, to check that notifications arrive. All of this is one
        statement.
        """
        self._take_lock(session)
        statement = _RENEW.format(proof="id" if proof is None else _PROOF, query=query)
        proofs = () if proof is None else (proof,)
        rows = session.rows(statement, (*self._parameters(session), *proofs))
        # Race: a worker that was suspended for a lease may be removed from the table. It registers before it
        # claims again, so that it is never removed while it holds a job that it has just claimed.
        self._next = now + min(REGISTER_EVERY, conf.current().lease / 3) * random.uniform(0.9, 1.1)
        return rows

    def register(self, session: Session) -> None:
        """Register before the first claim: the worker that a lease names must exist.

        On a direct connection, take the worker's advisory lock first. It is released when the session ends,
        and so when the process ends. If it cannot be taken, the worker notes this in the table and takes it
        the next time, because a lock of a living worker must never look free.
        """
        self._take_lock(session)
        session.run((_REGISTER, self._parameters(session)))

    def _parameters(self, session: Session) -> tuple[Any, ...]:
        options = self._options
        return (
            self._worker, socket.gethostname()[:255], os.getpid(), self._supervisor, list(options.queues),
            list(options.exclude_queues), options.slots, _version(), session.holds_lock,
            resident_memory(), self._lost,
        )  # fmt: skip

    def set_draining(self, session: Session) -> None:
        """Show in the table that the worker claims no more jobs."""
        session.run(("UPDATE pgqueue_worker SET state = 'draining' WHERE id = %s", (self._worker,)))

    def unregister(self, session: Session) -> None:
        """Remove the worker at its end. If it still holds a job, it stays in the table, to be found dead."""
        session.run(("SELECT pgqueue_forget_workers_v1(%s::bigint[])", ([self._worker],)))

    def _take_lock(self, session: Session) -> None:
        """Take the lock once for each session, because advisory locks are counted."""
        if not session.pooled and not session.holds_lock:
            self._try_lock(session)
            if not session.holds_lock and session is not self._asked_by:
                self._asked_by = session
                self._end_last_session(session)

    def _try_lock(self, session: Session) -> None:
        lock = "SELECT pg_try_advisory_lock(pgqueue_lock_key_v1('worker', %s))"
        session.holds_lock = session.value(lock, (str(self._worker),))

    def _end_last_session(self, session: Session) -> None:
        """End the session that this worker had before, and take its lock.

        Race: after a reconnect, the server may not have noticed the end of the old connection. A claim that
        it still works on would be committed after the new session has given back the jobs that the worker
        does not know, and nobody would run them. If the old session does not end in time, or the role has no
        right to end it, such jobs are looked for once more when the lock is taken (``Connection``).
        """
        session.run((_END_SQL, ([self._worker],)))
        give_up = monotonic() + END_WITHIN
        while not session.holds_lock and monotonic() < give_up:
            sleep(0.02)
            self._try_lock(session)


def _version() -> str:
    try:
        return version("dj-pgqueue")
    except PackageNotFoundError:  # run from a checkout that is not installed
        return "unknown"


# ----------------------------------------------------------------------------
# How much memory this process uses.

_STATM = Path("/proc/self/statm")


def resident_memory() -> int | None:
    """Return the bytes of this process that are in memory now; None if the system does not tell, as outside
    Linux.
    """
    try:
        pages = int(_STATM.read_text(encoding="ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None
