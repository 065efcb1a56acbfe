"""The supervisor's work in the database: it sends heartbeats for the processes that are alive, requeues the
jobs of processes that died, and does the maintenance. When it loses its connection, it tries to reconnect
without blocking the supervisor.

The statement of a heartbeat also finds workers of others whose heartbeats are late. Recovery runs only if
there are any, at the moment when the first of them may be dead. While no job runs and no worker is late,
every second heartbeat is left out. A row without started jobs therefore counts as late one interval later
(``_pgqueue_allowed_silence``).

The same statement asks when the next schedule is due. Of a schedule that a user has just changed, a trigger
sends a notification (``_pgqueue_schedule_changed``). The supervisor listens only if there are schedules, so
others pay nothing; a heartbeat notices the first one, and behind a transaction pooler every change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from time import monotonic
from typing import Any

import psycopg

from ... import conf
from ...formatting import counted, get_logger
from ...maintenance.alerts import AlertRounds
from ...maintenance.limits import DeclaredLimits
from ...maintenance.recovery import EndedProcess, EndedProcesses
from ...maintenance.reindex import ReindexRounds
from ...maintenance.rounds import Rounds, tell_retention
from ...postgres import sql_of
from ...postgres.arrays import number_array
from ...postgres.session import (
    LOST_CONNECTION,
    SUPERVISOR,
    Session,
    StandbyError,
    accepts_connections,
    connect,
    is_standby,
)
from ...schedules.fire import LOOK_LIMIT, NEXT_LOOK, fire_due, left_out
from ..options import WorkerOptions
from ..sessions import LONGEST_PAUSE, Outage
from .child import Child

logger = get_logger(__name__)

PATIENCE = 60.0  # seconds for a server that starts together with the worker
SOON = 0.02  # seconds between two attempts to requeue the jobs of a process that has ended
_BEAT_SQL = sql_of(__file__, "beat").format(next_look=NEXT_LOOK)
_AFTER = 0.02  # seconds; the round of recovery comes after that moment, not before it
_EXTENDED_SQL = sql_of(__file__, "extended")
_RUNNING_SQL = sql_of(__file__, "running")
_BACKLOG_SQL = sql_of(__file__, "backlog")
# A user waits for the answer, and so does the rest of the supervisor.
_WITHIN_A_SECOND = "SELECT set_config('statement_timeout', '1000', true)"


class Heartbeat:
    """Used only by the thread of its supervisor."""

    def __init__(self, options: WorkerOptions) -> None:
        self._options = options
        self._alias = options.alias
        self.session: Session | None = None  # that has not been found to be lost
        self._rounds = Rounds()
        self._alerts = AlertRounds(options.alias)
        self._reindex = ReindexRounds(options.alias)
        self._listens_in: Session | None = None  # the session that hears of changed schedules
        self._ended = EndedProcesses()
        # At least once per heartbeat, or a supervisor that is back earlier takes our processes for dead.
        self._outage = Outage(longest=min(LONGEST_PAUSE, conf.current().heartbeat))
        self._next_beat = 0.0
        self._may_skip = False
        self._sent: dict[str, list[Any]] = {}  # what the last heartbeat has written

    def start(
        self, check: Callable[[], None], sleep: Callable[[float], None], stopped: Callable[[], bool]
    ) -> bool:
        """Connect once the server is the primary, call ``check``, and prepare what processes need. Return
        False if ``stopped`` returns True before that.

        Raises what ``check`` raises, and ``psycopg.Error`` if there is no server or it refuses.
        """
        self.session = None  # of an attempt before
        session = self.session = wait_for_primary(self._alias, self._outage, sleep, stopped)
        if session is None:
            return False
        check()
        locked = Outage()
        while not stopped():
            try:
                self._prepare(session)
                return True
            except psycopg.errors.LockNotAvailable as error:
                # A migration or a user holds a lock. Workers that run wait for it, and so does this one.
                locked.log("the worker waits for a lock and starts later", error)
                sleep(locked.pause())
        return False

    def _prepare(self, session: Session) -> None:
        tell_retention(session)
        limits = DeclaredLimits()
        limits.write(session)
        limits.withdraw(session)
        if self._options.schedules and self._options.burst:  # before it starts its processes
            while fire_due(session.rows, self._rounds.schedules.broken) >= LOOK_LIMIT:
                pass

    @property
    def files(self) -> tuple[int, ...]:
        """The files that become readable when ``serve`` must be called earlier."""
        session = self.session
        return () if session is None or session is not self._listens_in else (session.connection.fileno(),)

    def seconds_left(self, now: float) -> float:
        """Return the seconds until ``serve`` must be called again."""
        if self._ended and self.session is not None:
            return SOON
        if self.session is None:
            return max(0.0, self._next_beat - now)
        rounds = (self._rounds.next_round, self._alerts.next_round, self._reindex.next_round)
        return max(0.0, min(self._next_beat, *rounds) - now)

    def process_ended(self, child: Child, to_blame: list[int] | None, reason: str) -> None:
        """Record that a process ended; the next ``serve`` requeues its jobs. ``to_blame``: `EndedProcess`."""
        ended = EndedProcess(
            child.worker, child.jobs.begun(), to_blame, reason, child.started_at, monotonic()
        )
        ended.stacks = child.jobs.stacks()
        for job, stack in ended.stacks.items():
            logger.error("job %s did this when its process ended:\n%s", job, stack.rstrip())
        self._ended.add(ended)

    def serve(self, children: Iterable[Child]) -> None:
        """Do everything that is due."""
        now = monotonic()
        try:
            if self.session is None:
                if now < self._next_beat:
                    return
                self.session = connect(self._alias, name=SUPERVISOR)
            if now >= self._next_beat:
                self._next_beat = now + conf.current().heartbeat
                states = _states([child for child in children if child.lives])
                if not self._skips(states):
                    self._beat(self.session, states)
            self._ended.give_back(self.session)
            self._hear(self.session)
            self._rounds.run(self.session, monotonic())
            self._alerts.run(monotonic())
            self._reindex.run(monotonic())
            # What arrived during these statements does not make the file readable any more.
            self._hear(self.session)
            self._outage.over()
        except psycopg.Error as error:
            self.lost(error)

    def extended(self, jobs: list[int]) -> set[int]:
        """Return the jobs whose deadline in the database is still in the future."""
        return {job for (job,) in self._ask(_EXTENDED_SQL, jobs) or ()}

    def running(self, jobs: list[int]) -> list[tuple[str, float]] | None:
        """Return task and age in seconds of those jobs that still run, oldest first; None: no answer."""
        return self._ask(_RUNNING_SQL, jobs)

    def has_backlog(self) -> bool:
        """Return whether a job of our queues has been due for a while. False if the database does not answer.

        This is for when all processes are busy: what is due may also wait for the limit of its queue.
        """
        options = self._options
        rows = self._ask(_BACKLOG_SQL, list(options.queues) or None, list(options.exclude_queues))
        return bool(rows and rows[0][0])

    def _ask(self, query: str, *parameters: Any) -> list[Any] | None:
        if parameters == ([],):
            return []
        if self.session is None:
            return None
        try:
            return self.session.run((_WITHIN_A_SECOND, None), (query, parameters))[1]
        except psycopg.errors.QueryCanceled:
            return None
        except psycopg.Error as error:
            self.lost(error)
            return None

    def close(self) -> None:
        """Requeue the remaining jobs, if the database answers within a second, and disconnect."""
        give_up = monotonic() + 1.0
        while self._ended and self.session is not None and monotonic() < give_up:
            try:
                self._ended.give_back(self.session)
            except psycopg.Error as error:
                self.lost(error)
        if self._ended:
            ended = counted(len(self._ended), "process", "processes")
            logger.warning("another supervisor will recover the jobs of %s that ended", ended)
        if self.session is not None:
            self.session.close()

    def _beat(self, session: Session, states: dict[str, list[Any]]) -> None:
        settings = conf.current()
        times = {"interval": settings.heartbeat, "lease": settings.lease}
        late: float | None
        due: float | None
        late, due = session.row(_BEAT_SQL, {**states, **times, **left_out(self._rounds.schedules.broken)})
        self._sent = states
        self._may_skip = late is None and settings.lease >= 6 * settings.heartbeat
        if due is not None and self._options.schedules and not self._options.burst:
            self._rounds.schedules.look_in(0.0 if self._listen(session) else due, monotonic())
        if late is not None:
            self._rounds.recover_at(monotonic() + max(0.0, late) + _AFTER)

    def _listen(self, session: Session) -> bool:
        """Listen in this session. Return whether that begins now: what changed before was not heard."""
        if session is self._listens_in or session.pooled:
            return False
        channel = session.value("SELECT _pgqueue_channel() || '_schedules'")
        session.connection.execute(f'LISTEN "{channel}"')
        self._listens_in = session
        return True

    def _hear(self, session: Session) -> None:
        if session is self._listens_in and session.notifications():
            self._rounds.schedules.look_in(0.0, monotonic())

    def _skips(self, states: dict[str, list[Any]]) -> bool:
        """Return whether to leave this heartbeat out. The next one is always sent.

        Race: a job may start after this. Like any other, it is written to the row within an interval.
        """
        is_idle = not any(states["lost_lock"]) and set(states["begun"]) == {number_array([])}
        skips = self._may_skip and is_idle and states == self._sent
        self._may_skip = False
        return skips

    def lost(self, error: psycopg.Error) -> None:
        """Connect anew after an error."""
        if isinstance(error, LOST_CONNECTION):
            what = "no connection yet" if self.session is None else "the connection is lost"
            self._outage.log(what, error)
        else:  # a failed round of maintenance must not end the workers
            logger.exception("maintenance failed; it is retried with a new connection")
        if self.session is not None:
            self.session.close()
        self.session = None
        self._may_skip = False
        self._next_beat = monotonic() + self._outage.pause()


def _states(living: list[Child]) -> dict[str, list[Any]]:
    """Return what a heartbeat writes about these processes."""
    begun = [child.jobs.begun() for child in living]
    return {
        "ids": [child.worker for child in living],
        "begun": [None if jobs is None else number_array(jobs) for jobs in begun],
        "lost_lock": [not child.jobs.holds_lock for child in living],
    }


def wait_for_primary(
    alias: str, outage: Outage, sleep: Callable[[float], None], stopped: Callable[[], bool]
) -> Session | None:
    """Open the first session of a supervisor. Wait while the server is a standby, and for a minute while it
    starts or does not answer; return None if stopped.

    Raise ``psycopg.OperationalError`` if the server refuses, or if none answers in this time. A server that
    becomes unreachable later may be a standby that restarts in order to become the primary.
    """
    waits = accepts = False
    patient_until = monotonic() + PATIENCE
    while not stopped():
        try:
            return connect(alias, name=SUPERVISOR)
        except psycopg.OperationalError as error:
            standby = isinstance(error, StandbyError) or is_standby(alias)
            waits = waits or standby
            # Race: it may have become ready after it had refused, so what counts is the next attempt.
            accepted, accepts = accepts, accepts_connections(alias)
            coming = monotonic() < patient_until and not (accepted and accepts)
            if not (waits or coming):
                raise
            if standby or not accepts:
                outage.log("no connection yet", StandbyError() if standby else error)
            sleep(outage.pause())
    return None
