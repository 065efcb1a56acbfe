"""The producer's session: how it is set up at the start and whenever the connection was lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from time import monotonic

import psycopg

from ... import conf
from ...formatting import get_logger
from ...postgres.session import LOST_CONNECTION, Session, connect
from ..sessions import Outage, Registration, requeue_strangers
from ..started_jobs import StartedJobs
from ..waker import Waker
from .jobs import Jobs, Lifetime

logger = get_logger(__name__)


@dataclass
class Connection:
    """The current session, if there is one.

        none --open--> open: registered, holds its lock, has requeued claims that it does not know of
        open --an error--> none --reopen--> open

    ``set_up`` is called with each new session, and may use it.
    """

    registration: Registration
    jobs: Jobs
    lifetime: Lifetime
    waker: Waker
    started_jobs: StartedJobs
    set_up: Callable[[Session], None]
    session: Session | None = None
    outage: Outage = field(default_factory=Outage)
    _held_lock: bool = False  # when the supervisor heard of it last
    _older: set[int] = field(default_factory=set)  # jobs that ran when the session was opened

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
        session = connect(self.registration.options.alias)
        try:
            self.registration.register(session)
            requeue_strangers(session, self.registration.worker, self.jobs)
            self.set_up(session)
        except psycopg.Error:
            session.close()
            raise
        if session.pooled:
            _say_that_it_polls(self.registration.options.alias)
        self.session, self._older = session, set(self.jobs)
        self._held_lock = session.holds_lock
        self.tell_supervisor()

    def tell_supervisor(self) -> None:
        """Note whether the lock is held, which may become true some time after the session was opened.

        Race: until then, the session before may have committed a claim whose answer reached no worker.
        """
        session = self.live
        if session.holds_lock and not self._held_lock:
            requeue_strangers(session, self.registration.worker, self.jobs)
        self._held_lock = session.holds_lock
        self.started_jobs.registered, self.started_jobs.holds_lock = True, session.holds_lock

    def settle(self) -> None:
        """When the jobs have ended that ran before this session, requeue once more what is not known here.

        Race: a server that hung goes on for a moment although another one is the primary by now. If the
        transaction of an atomic job is committed there, the primary still says that it runs here.
        """
        if self._older and self._older.isdisjoint(self.jobs):
            self._older = set()
            requeue_strangers(self.live, self.registration.worker, self.jobs)

    def reopen(self, error: Exception | None = None) -> None:
        """Connect, but after an ``error`` only after a pause. Try until it succeeds. If the worker stops, try
        until the grace period ends or nothing is left.
        """
        what = "no connection yet" if self.session is None else "the connection is lost"
        self.started_jobs.holds_lock = False
        if self.session is not None:
            self.session.close()
            self.session = None
        while True:
            if error is not None:
                self.outage.log(what, error)
                self._wait(self.outage.pause())
            try:
                self.open()
            except LOST_CONNECTION as again:
                what, error = "no connection yet", again
                if self.lifetime.stopping and not (self.jobs and self.lifetime.grace_left()):
                    return
            else:
                return

    def _wait(self, seconds: float) -> None:
        """Sleep, even if jobs end in the meantime. Only a stop, or the end of the grace period, ends it."""
        grace_ends = self.lifetime.grace_ends
        ends = min(monotonic() + seconds, grace_ends)
        while (left := ends - monotonic()) > 0 and self.lifetime.grace_ends == grace_ends:
            self.waker.sleep(left, lambda: False)


@cache
def _say_that_it_polls(alias: str) -> None:
    """Log this once in each process, however often it connects."""
    logger.warning(
        "the database %r is behind a transaction pooler: the worker polls every %g s and does not receive "
        "notifications; with a direct connection jobs start sooner",
        alias,
        conf.current().shortest_poll,
    )
