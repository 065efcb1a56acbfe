"""How the sessions of a worker's processes begin: attempts to connect, and the entry in the table of workers.

    works --failure--> outage: pauses of 0.1, 0.2, 0.4 ... seconds up to the longest, each with jitter
    outage --it works again, not only connects--> works: the next failure is tried again at once

A server that accepts connections but refuses the work (its disk is full) must not be called ten times a
second. This is why an outage ends with a round of work that succeeded. An outage may last for hours, so the
same message is logged only once a minute.
"""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Iterable
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import psycopg

from .. import __version__, conf
from ..formatting import get_logger
from ..jobs.finish import Outcome, finish_statement
from ..postgres import sql_of
from ..postgres.session import Session
from .options import WorkerOptions

logger = get_logger(__name__)

FIRST_PAUSE = 0.1  # seconds; with jitter from half of it
LONGEST_PAUSE = 5.0
SAY_AGAIN = 60.0
REGISTER_EVERY = 10.0  # seconds; a deaf session is found after at most two of these, so keep it below 15
END_WITHIN = 2.0  # seconds until a session that was asked to end has ended, unless its server is very slow


class Outage:
    """The attempts of a process to reach its database again. ``longest``: the longest pause, in seconds."""

    def __init__(self, longest: float = LONGEST_PAUSE) -> None:
        self._longest = longest
        self._pause = 0.0
        self._said = ""
        self._say_again_at = 0.0

    def log(self, what: str, error: Exception) -> None:
        """Log a failure, unless the same message was logged less than a minute ago."""
        # str() of an error of the server has its query, too: many lines.
        own = error.diag.message_primary if isinstance(error, psycopg.Error) else None
        text = f"{what}: {own or str(error).strip() or type(error).__name__}"
        now = monotonic()
        if text != self._said or now >= self._say_again_at:
            self._said = text
            self._say_again_at = now + SAY_AGAIN
            logger.warning("%s", text)

    def pause(self) -> float:
        """Return the seconds until the next attempt."""
        self._pause = min(self._longest, 2 * self._pause or FIRST_PAUSE)
        return self._pause * random.uniform(0.5, 1.0)

    def over(self) -> None:
        """Note that everything works. This is cheap if there was no outage."""
        if self._pause:
            self._pause = 0.0
            self._said = ""
            logger.info("connected again")


_REGISTER = sql_of(__file__, "register")
_END_SQL = "SELECT _pgqueue_end_sessions(%s::bigint[])"
_PROOF = "pg_notify(_pgqueue_channel(), %s)::text"
_STRANGERS_SQL = sql_of(__file__, "strangers")


class Registration:
    """The entry of one worker process in the table."""

    def __init__(self, options: WorkerOptions, worker: int, supervisor: int) -> None:
        self.options = options
        self.worker = worker
        self._supervisor = supervisor
        self._next = 0.0
        self._lost = 0
        self._asked_by: Session | None = None
        """The session that has asked the server to end the one before."""

    def due(self, now: float, lost: int = 0) -> bool:
        """Return whether it is time to register again. It is, too, if another number of slots is taken by
        ``lost`` jobs.

        A worker that was suspended for a long time counts as dead and is removed from the table. The jobs of
        a worker that is not in the table would never be recovered.
        """
        changed, self._lost = lost != self._lost, lost
        return changed or now >= self._next

    def renew(self, session: Session, now: float, query: str, proof: str | None) -> list[Any]:
        """Register, and note when to do so next. See ``register``."""
        rows = self.register(session, query, proof)
        # Race: a worker that was suspended for a lease may be removed from the table. It registers before it
        # claims again, so that it is never removed while it holds a job that it has just claimed.
        self._next = now + min(REGISTER_EVERY, conf.current().lease / 3) * random.uniform(0.9, 1.1)
        return rows

    def register(self, session: Session, query: str = "SELECT 1", proof: str | None = None) -> list[Any]:
        """Register, first of all before the first claim: the worker that a lease names must exist. Return the
        rows of ``query``, which has no parameters.

        ``proof``: what the worker sends to itself, to check that notifications arrive. All of this is one
        statement.

        On a direct connection, take the worker's advisory lock first. It is released when the session ends,
        and so when the process ends. If it cannot be taken, the worker notes this in the table and takes it
        the next time, because a lock of a living worker must never look free.
        """
        if not session.pooled and not session.holds_lock:  # once: advisory locks are counted
            self._try_lock(session)
            if not session.holds_lock and session is not self._asked_by:
                self._asked_by = session
                self._end_last_session(session)
        return self._write(session, query, proof)

    def _write(self, session: Session, query: str, proof: str | None) -> list[Any]:
        options = self.options
        version = conf.current().version or f"pgqueue {__version__}"  # of the project, or of this package
        parameters = (
            self.worker, socket.gethostname()[:255], os.getpid(), self._supervisor, list(options.queues),
            list(options.exclude_queues), options.slots, version, session.holds_lock,
            resident_memory(), self._lost, *(() if proof is None else (proof,)),
        )  # fmt: skip
        return session.rows(
            _REGISTER.format(proof="id" if proof is None else _PROOF, query=query), parameters
        )

    def set_draining(self, session: Session) -> None:
        """Show in the table that the worker claims no more jobs."""
        session.run(("UPDATE pgqueue_worker SET state = 'draining' WHERE id = %s", (self.worker,)))

    def unregister(self, session: Session) -> None:
        """Remove the worker at its end. If it still holds a job, it stays in the table, to be found dead."""
        session.run(("SELECT _pgqueue_forget_workers(%s::bigint[])", ([self.worker],)))

    def _try_lock(self, session: Session) -> None:
        lock = "SELECT pg_try_advisory_lock(_pgqueue_lock_key('worker', %s))"
        session.holds_lock = session.value(lock, (str(self.worker),))

    def _end_last_session(self, session: Session) -> None:
        """End the session that this worker had before, and take its lock.

        Race: between the two, the lock is free. If the supervisor lost its connection as well, its last
        heartbeat is old, and another supervisor would find the worker dead unless the table says that no
        lock is held.

        Race: after a reconnect, the server may not have noticed the end of the old connection. A claim that
        it still works on would be committed after the new session has given back the jobs that the worker
        does not know, and no worker would run them. If the old session does not end in time, or the role has
        no right to end it, such jobs are searched once more when the lock is taken (``Connection``).
        """
        self._write(session, "SELECT 1", None)
        session.run((_END_SQL, ([self.worker],)))
        give_up = monotonic() + END_WITHIN
        while not session.holds_lock and monotonic() < give_up:
            sleep(0.02)
            self._try_lock(session)


def requeue_strangers(session: Session, worker: int, held: Iterable[int]) -> None:
    """Requeue jobs whose claim was committed but whose answer was lost with the connection."""
    rows = session.rows(_STRANGERS_SQL, (worker, list(held)))
    if rows:
        session.run(finish_statement([Outcome(job_id, lease, "release") for job_id, lease in rows]))


_STATM = Path("/proc/self/statm")


def resident_memory() -> int | None:
    """Return the bytes of this process that are in memory now; None if they are not known, outside Linux."""
    try:
        pages = int(_STATM.read_text(encoding="ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None
