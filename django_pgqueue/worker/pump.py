"""The pump: claims jobs, hands them to the executor, reports how they went. One to a process, one connection.

    look:     is there room, and is it time? claim; found nothing: search for new ranges, claim again
    report:   collected outcomes, together with the next claim in one round trip and one commit
    sleep:    until outcomes, a notification, a signal, or the next look

Stopping: nothing more is claimed, what nobody has started goes back, running jobs may finish within the
grace, the rest goes back without spending an attempt. Losing the connection: jobs go on, outcomes wait, the
pump reconnects for ever; claims whose answer was lost on the way are given back.
"""

from __future__ import annotations

import logging
import random
from time import monotonic
from typing import TYPE_CHECKING

import psycopg

from .. import conf
from ..lifecycle.finish import Outcome
from . import registry
from .chores import Chores
from .entry import enter
from .executor import Executor
from .finder import Finder
from .finisher import REFUSALS, Finisher
from .idle import Idle
from .joblog import log_job
from .memory import resident_megabytes
from .pace import Pace
from .policy_filler import fill_policy

if TYPE_CHECKING:
    from ..lifecycle.claim import Claimed
    from .connection import Session
    from .executor import Result
    from .options import WorkerOptions
    from .runner import Runner
    from .waker import Waker

__all__ = ["Pump"]

logger = logging.getLogger(__name__)

LONGEST_SLEEP = 1.0  # seconds
BURST_PAUSE = 0.02  # seconds between two looks while the last jobs of a burst run
HOARD_SECONDS = 1.0  # a job that nobody has started after this time goes back: another worker may be free

_LOST_CONNECTION = (
    psycopg.OperationalError,
    psycopg.InterfaceError,
    psycopg.errors.ReadOnlySqlTransaction,  # the primary has become a standby
)
_TRANSIENT = (psycopg.errors.DeadlockDetected, psycopg.errors.SerializationFailure)


class Pump:
    """The loop of a worker process."""

    def __init__(
        self,
        options: WorkerOptions,
        *,
        worker: int,
        supervisor: int,
        lease_base: int,
        runner: Runner,
        waker: Waker,
    ) -> None:
        self.options = options
        self.executed = 0
        """Jobs run so far."""
        self.recycled = False
        """Whether it stopped because it has run its number of jobs, or has grown too large."""
        self._worker = worker
        self._supervisor = supervisor
        self._runner = runner
        self._waker = waker
        self._executor = Executor(runner, options.threads, waker)
        self._finder = Finder(options, worker, lease_base)
        self._finisher = Finisher()
        self._idle = Idle(options.queues, conf.current().poll_interval)
        self._pace = Pace(options.threads)
        self._chores = Chores(options, worker, supervisor, runner)
        self._held: dict[int, tuple[Claimed, float]] = {}
        self._session: Session | None = None
        self._claimed = 0
        self._exhausted = False
        self._dispatched_at = 0.0
        self._next_memory_look = 0.0
        self._stopping = False
        self._drained = False
        self._grace_ends = float("inf")

    # -- from outside

    def stop(self, grace: float) -> None:
        """Claim no more, finish what runs within ``grace`` seconds, then end. Safe in a signal handler."""
        self._stopping = True
        self._grace_ends = min(self._grace_ends, monotonic() + grace)
        self._waker.interrupt()

    @property
    def stopping(self) -> bool:
        """Whether ``stop`` was called."""
        return self._stopping

    def run(self) -> None:
        """Work until stopped, or in a burst until nothing is due."""
        try:
            try:
                self._connect()
            except _LOST_CONNECTION as error:
                self._reconnect(error)
            while not self._over():
                try:
                    self._turn()
                except _TRANSIENT as error:
                    logger.info("once more after %s", type(error).__name__)
                except _LOST_CONNECTION as error:
                    self._reconnect(error)
        finally:
            self._executor.stop()
        self._executor.join(min(1.0, max(0.0, self._grace_ends - monotonic())))
        self._end()

    # -- one turn

    def _turn(self) -> None:
        session = self._live_session()
        self._hear(session)
        self._collect()
        if self._stopping and not self._drained:
            self._drain()
        now = monotonic()
        self._chores.before_work(session, now)
        limit = self._room(now)
        rows = self._exchange(session, limit, now)
        if rows:
            self._dispatch(session, rows)
        elif limit:
            self._look_further(session)
        now = monotonic()
        self._give_hoard_back(now)
        self._chores.after_work(session, now)
        self._sleep(session)

    def _hear(self, session: Session) -> None:
        """Notifications first, then the look: one read after the look might be of a job that it missed."""
        if session.pooled:
            return
        for notification in session.notifications():
            word, _, rest = notification.payload.partition(" ")
            if word == "cancel" and rest.isdigit():
                self._runner.cancel(int(rest))
            else:
                self._idle.look_now()

    def _collect(self) -> None:
        results = self._executor.results
        while results:
            done = results.popleft()
            self._finisher.add(done)
            self._pace.learn([ran for _, _, ran in done])

    def _room(self, now: float) -> int:
        """How many jobs to claim now."""
        if self._stopping or not self._idle.due(now):
            return 0
        held = len(self._held) - len(self._finisher)
        limit = self._pace.wanted(held, running_low=held < self.options.threads)
        if self.options.max_jobs is not None:
            limit = min(limit, self.options.max_jobs - self._claimed)
        return max(0, limit)

    def _exchange(self, session: Session, limit: int, now: float) -> list[Claimed]:
        """Report what is due and claim up to ``limit`` jobs, in one round trip."""
        nothing_else_runs = len(self._finisher) == len(self._held)
        enough = 1 if nothing_else_runs or self._stopping else max(1, self._pace.target // 4)
        report = self._finisher.statement() if self._finisher.due(now, enough) else None
        claim = self._finder.claim_statement(limit) if limit and self._may_claim() else None
        if report is None and self._finisher.due(now, enough):
            self._reported(self._finisher.reported([]))
        if report is None and claim is None:
            return []
        release = self._idle.release()
        statements = [statement for statement in (release, report, claim) if statement is not None]
        try:
            answers = session.run(*statements, durable=report is not None)
        except REFUSALS:
            if report is None:
                raise
            self._reported(self._finisher.report_one_by_one(session))
            return []
        if report is not None:
            self._reported(self._finisher.reported(answers[-2 if claim else -1]))
        return self._finder.claimed(answers[-1]) if claim else []

    def _may_claim(self) -> bool:
        # A sleeper that nobody has called only looks whether there is anything: one statement, not two.
        return self._finder.knows_ranges and (self._idle.called or not self._idle.announced)

    def _look_further(self, session: Session) -> None:
        """The known ranges gave nothing: search, and claim what was found."""
        thorough = self.options.burst and not self._held
        due, next_due = self._finder.search(session, thorough=thorough)
        if due:
            statement = self._finder.claim_statement(self._room(monotonic()))
            (answer,) = session.run(statement, durable=False)
            rows = self._finder.claimed(answer)
            if rows:
                self._dispatch(session, rows)
                return
        # A job that still runs may enqueue more: a burst looks once again when the last one has ended.
        self._exhausted = not due and not self._held
        if self.options.burst:
            self._idle.pause(monotonic(), BURST_PAUSE)
        else:
            self._idle.nothing_found(session, monotonic(), next_due)

    def _dispatch(self, session: Session, rows: list[Claimed]) -> None:
        now = monotonic()
        self._idle.found()
        self._exhausted = False
        self._claimed += len(rows)
        self._dispatched_at = now
        for row in rows:
            self._held[row.id] = (row, now)
        if any(row.on_lost is None for row in rows):
            try:
                rows = fill_policy(session, rows)
            except psycopg.Error:
                self._release(rows)  # they are held, but nobody will run them
                raise
        self._executor.submit(rows, self._pace.job_seconds)
        if self._finder.may_search(now):
            self._finder.search(session)

    def _reported(self, results: list[Result]) -> None:
        for row, outcome, ran in results:
            held = self._held.get(row.id)
            # A job that lost its lease may have come back under another one meanwhile.
            if held and held[0].lease == row.lease:
                del self._held[row.id]
            if outcome.kind == "release":
                self._claimed -= 1
                continue
            began = outcome.started or 0.0
            waited = row.waited + (began - held[1] if held and began else 0.0)
            self._chores.counter.add(row, outcome.kind, max(0.0, waited), ran)
            log_job(row, outcome, waited, ran)
            self.executed += outcome.kind != "unknown"

    # -- now and then

    def _give_hoard_back(self, now: float) -> None:
        """Jobs that looked quick and are not: what was claimed ahead of them must not wait here."""
        if now - self._dispatched_at > HOARD_SECONDS and len(self._held) > self.options.threads:
            self._dispatched_at = now
            self._pace.learn([HOARD_SECONDS])
            self._release(self._executor.take_back())

    def _release(self, rows: list[Claimed], reason: str | None = None) -> None:
        """Rows that nobody will run here go back, at the next report, without spending an attempt."""
        results = [(row, Outcome(row.id, row.lease, "release", reason=reason), 0.0) for row in rows]
        if results:
            self._finisher.add(results)

    def _sleep(self, session: Session) -> None:
        if not self._held and (self._stopping or self._has_had_its_day()):
            return
        # Race: a notification that came during the statements of this turn is no longer in the socket, so
        # nothing would end the sleep. It is heard here, and the next turn looks.
        self._hear(session)
        now = monotonic()
        seconds = LONGEST_SLEEP
        if self._finisher:
            seconds = min(seconds, self._finisher.seconds_left(now))
        if not self._stopping and self._pace.wanted(len(self._held) - len(self._finisher), running_low=True):
            seconds = min(seconds, self._idle.seconds_left(now))
        if self._executor.rebalance():
            seconds = min(seconds, 0.005)
        if self._stopping:
            seconds = min(seconds, max(0.0, self._grace_ends - now))
        files = () if session.pooled else (session.connection.fileno(),)
        if seconds > 0:
            self._waker.sleep(seconds, lambda: bool(self._executor.results), *files)

    # -- the end

    def _over(self) -> bool:
        if self._stopping:
            gave_back = self._drained or self._session is None
            return (gave_back and not self._held) or monotonic() >= self._grace_ends
        if self._has_had_its_day():
            self.recycled = True
            self.stop(float("inf"))  # it drains, however long that takes: nothing is dropped
        return self.options.burst and self._exhausted and not self._held

    def _has_had_its_day(self) -> bool:
        options = self.options
        if options.max_jobs is not None and self._claimed >= options.max_jobs:
            return not self._held  # the last of them run to their end
        now = monotonic()
        if options.max_rss is None or now < self._next_memory_look or not self.executed:
            return False  # at least one job: a limit below what it takes to start must not stop everything
        self._next_memory_look = now + 1.0
        return resident_megabytes() > options.max_rss

    def _drain(self) -> None:
        """Give back what nobody has started."""
        self._release(self._executor.take_back())
        self._drained = True
        registry.set_draining(self._live_session(), self._worker)

    def _end(self) -> None:
        """Report the last outcomes, give the rest back without spending an attempt, sign off."""
        self._collect()
        waiting = self._finisher.ids()
        rest = [row for job_id, (row, _) in self._held.items() if job_id not in waiting]
        if rest:
            logger.warning("%d jobs did not finish within the grace and go back to their queues", len(rest))
            self._release(rest, "its worker was stopped")
        while self._session is not None:
            try:
                self._exchange(self._session, 0, float("inf"))
                self._chores.flush(self._session)
                registry.unregister(self._session, self._worker)
                self._session.close()
                return
            except _TRANSIENT as error:
                logger.info("once more after %s", type(error).__name__)
            except _LOST_CONNECTION as error:
                self._reconnect(error)
        logger.error("the server is gone; outcomes of %d jobs are lost, they will run again", len(self._held))

    # -- the connection

    def _live_session(self) -> Session:
        assert self._session is not None
        return self._session

    def _connect(self) -> None:
        session = enter(self.options, self._worker, self._supervisor, self._held)
        try:
            self._idle.connected(session)
        except psycopg.Error:
            session.close()
            raise
        self._session = session

    def _reconnect(self, error: Exception) -> None:
        """Until it succeeds; if the worker stops, until the grace ends or nothing is left to report."""
        logger.warning("the connection is lost: %s", str(error).strip() or type(error).__name__)
        if self._session is not None:
            self._session.close()
            self._session = None
        pause = 0.1
        while True:
            self._waker.sleep(pause * random.uniform(0.5, 1.0), lambda: False)
            pause = min(pause * 2, 10.0)
            try:
                self._connect()
            except _LOST_CONNECTION as again:
                logger.warning("no connection yet: %s", str(again).strip())
            else:
                logger.info("connected again")
                return
            if self._stopping and (not self._held or monotonic() >= self._grace_ends):
                return
