"""The producer's session: how it enters the database, at its start and whenever it has lost its connection.

none --open--> open: registered, with its lock, what nobody holds given back, LISTEN
open --an error--> none --reopen--> open, for ever; if the worker stops, for as long as there is a reason
"""

from __future__ import annotations

import logging
from functools import cache
from time import monotonic
from typing import TYPE_CHECKING

import psycopg

from ... import conf
from ...lifecycle.finish import FINISH_SQL, Outcome, finish_parameters
from ...session import LOST_CONNECTION, connect
from ..reconnect import Outage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ...session import Session
    from ..processes.started_jobs import StartedJobs
    from ..registry import Registration
    from ..waker import Waker
    from .in_flight import InFlight
    from .lifetime import Lifetime

__all__ = ["Connection", "enter"]

logger = logging.getLogger(__name__)

_STRANGERS_SQL = """
    SELECT id, lease FROM pgqueue_job_live
    WHERE worker = %s AND status = 'running' AND NOT id = ANY (%s::bigint[])
"""


class Connection:
    """The session that there is now, if there is one."""

    def __init__(
        self,
        alias: str,
        worker: int,
        registration: Registration,
        in_flight: InFlight,
        lifetime: Lifetime,
        waker: Waker,
        started_jobs: StartedJobs,
        *connected: Callable[[Session], None],
    ) -> None:
        """``connected``: whoever wants to know each new session, and may use it."""
        self.session: Session | None = None
        self._alias = alias
        self._worker = worker
        self._registration = registration
        self._in_flight = in_flight
        self._lifetime = lifetime
        self._waker = waker
        self._started_jobs = started_jobs
        self._connected = connected
        self._outage = Outage()

    @property
    def live(self) -> Session:
        """The session, where there must be one."""
        assert self.session is not None
        return self.session

    def files(self) -> set[int]:
        """The files that are its own."""
        session = self.session
        return set() if session is None or session.connection.closed else {session.connection.fileno()}

    def open(self) -> None:
        """Enter the database. Raises ``psycopg.Error`` where that cannot be done."""
        session = enter(self._alias, self._worker, self._registration, self._in_flight)
        try:
            for tell in self._connected:
                tell(session)
        except psycopg.Error:
            session.close()
            raise
        self.session = session
        self.tell_supervisor()

    def tell_supervisor(self) -> None:
        """Note whether the lock is held, which may come to pass later than the session."""
        self._started_jobs.connect(holds_lock=self.live.holds_lock)

    def works(self) -> None:
        """A round of work went well."""
        self._outage.over()

    def reopen(self, error: Exception) -> None:
        """Until it succeeds; if the worker stops, until the grace ends or nothing is left to report."""
        self._outage.tell("no connection yet" if self.session is None else "the connection is lost", error)
        self._started_jobs.disconnect()
        if self.session is not None:
            self.session.close()
            self.session = None
        lifetime = self._lifetime
        while True:
            self._wait(self._outage.pause())
            try:
                self.open()
            except LOST_CONNECTION as again:
                self._outage.tell("no connection yet", again)
            else:
                return
            if lifetime.stopping and not (self._in_flight and lifetime.grace_left()):
                return

    def _wait(self, seconds: float) -> None:
        """Sleep however many jobs end meanwhile; only a stop, or the end of the grace, cuts it short."""
        grace_ends = self._lifetime.grace_ends
        ends = min(monotonic() + seconds, grace_ends)
        while (left := ends - monotonic()) > 0 and self._lifetime.grace_ends == grace_ends:
            self._waker.sleep(left, lambda: False)


def enter(alias: str, worker: int, registration: Registration, held: Iterable[int]) -> Session:
    """A session in which the worker is registered and holds its lock.

    ``held``: the jobs that it knows of. Raises ``psycopg.Error`` where the server cannot be had.
    """
    session = connect(alias)
    try:
        registration.register(session)
        _give_back_strangers(session, worker, held)
    except psycopg.Error:
        session.close()
        raise
    if session.pooled:
        _say_that_it_polls(alias)
    return session


@cache
def _say_that_it_polls(alias: str) -> None:
    """Once in the life of the process, however often it connects."""
    logger.warning(
        "the database %r is behind a transaction pooler: the worker polls every %g s, without "
        "notifications; a direct connection starts jobs sooner",
        alias,
        conf.current().poll_interval,
    )


def _give_back_strangers(session: Session, worker: int, held: Iterable[int]) -> None:
    """Claims that were committed but whose answer was lost with the connection: nobody runs them."""
    rows = session.rows(_STRANGERS_SQL, (worker, list(held)))
    if rows:
        outcomes = [Outcome(job_id, lease, "release") for job_id, lease in rows]
        session.run((FINISH_SQL, finish_parameters(outcomes, keep_errors=1)))
