"""The producer's session: how it is set up at the start and whenever the connection was lost.

none --open--> open: registered, holds its lock, has requeued claims that it does not know of, LISTENs
open --an error--> none --reopen--> open. It tries forever, or until a worker that stops has nothing to report
"""

from __future__ import annotations

from functools import cache
from time import monotonic
from typing import TYPE_CHECKING

import psycopg

from ... import conf
from ...formatting import get_logger
from ...jobs.finish import FINISH_SQL, Outcome, finish_parameters
from ...postgres.session import LOST_CONNECTION, connect
from ..reconnect import Outage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ...postgres.session import Session
    from ..processes.started_jobs import StartedJobs
    from ..registry import Registration
    from ..waker import Waker
    from .in_flight import InFlight
    from .lifetime import Lifetime

logger = get_logger(__name__)

_STRANGERS_SQL = """
    SELECT id, lease FROM pgqueue_job_live
    WHERE worker = %s AND status = 'running' AND NOT id = ANY (%s::bigint[])
"""


class Connection:
    """The current session, if there is one."""

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
        """``connected``: callables that are called with each new session and may use it."""
        self.session: Session | None = None
        self._alias = alias
        self._worker = worker
        self._registration = registration
        self._in_flight = in_flight
        self._lifetime = lifetime
        self._waker = waker
        self._started_jobs = started_jobs
        self._connected = connected
        self._held_lock = False  # when the supervisor was told last
        self._outage = Outage()

    @property
    def live(self) -> Session:
        """The session, for callers that run only when there is one."""
        assert self.session is not None
        return self.session

    def files(self) -> set[int]:
        """Return the file descriptors of the connection."""
        session = self.session
        return set() if session is None or session.connection.closed else {session.connection.fileno()}

    def open(self) -> None:
        """Connect and register. Raise ``psycopg.Error`` if that fails."""
        session = enter(self._alias, self._worker, self._registration, self._in_flight)
        try:
            for tell in self._connected:
                tell(session)
        except psycopg.Error:
            session.close()
            raise
        self.session = session
        self._held_lock = session.holds_lock
        self.tell_supervisor()

    def tell_supervisor(self) -> None:
        """Note whether the lock is held, which may become true some time after the session was opened.

        Race: until then, the session before may have committed a claim whose answer reached nobody.
        """
        session = self.live
        if session.holds_lock and not self._held_lock:
            give_back_strangers(session, self._worker, self._in_flight)
        self._held_lock = session.holds_lock
        self._started_jobs.connect(holds_lock=session.holds_lock)

    def works(self) -> None:
        """Note that a round of work succeeded."""
        self._outage.over()

    def reopen(self, error: Exception) -> None:
        """Try until it succeeds. If the worker stops, try until the grace period ends or nothing is left."""
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
        """Sleep, even if jobs end in the meantime. Only a stop, or the end of the grace period, ends it."""
        grace_ends = self._lifetime.grace_ends
        ends = min(monotonic() + seconds, grace_ends)
        while (left := ends - monotonic()) > 0 and self._lifetime.grace_ends == grace_ends:
            self._waker.sleep(left, lambda: False)


def enter(alias: str, worker: int, registration: Registration, held: Iterable[int]) -> Session:
    """Open a session in which the worker is registered and holds its lock.

    ``held``: the jobs that the worker knows of. Raise ``psycopg.Error`` if the server cannot be used.
    """
    session = connect(alias)
    try:
        registration.register(session)
        give_back_strangers(session, worker, held)
    except psycopg.Error:
        session.close()
        raise
    if session.pooled:
        _say_that_it_polls(alias)
    return session


@cache
def _say_that_it_polls(alias: str) -> None:
    """Log this once in each process, however often it connects."""
    logger.warning(
        "the database %r is behind a transaction pooler: the worker polls every %g s and does not receive "
        "notifications; with a direct connection jobs start sooner",
        alias,
        conf.current().shortest_poll,
    )


def give_back_strangers(session: Session, worker: int, held: Iterable[int]) -> None:
    """Requeue jobs whose claim was committed but whose answer was lost with the connection."""
    rows = session.rows(_STRANGERS_SQL, (worker, list(held)))
    if rows:
        outcomes = [Outcome(job_id, lease, "release") for job_id, lease in rows]
        session.run((FINISH_SQL, finish_parameters(outcomes, keep_errors=1)))
