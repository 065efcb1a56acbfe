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
from time import monotonic
from typing import TYPE_CHECKING

import psycopg

from ... import conf
from ...lifecycle.finish import Outcome
from ...session import LOST_CONNECTION
from .. import registry
from ..executor import outcomes
from ..executor.threads import Executor
from ..logs import log_job
from ..reconnect import Outage
from .batch_size import Pace
from .chores import Chores
from .claimer import Finder
from .completer import LOCKED, REFUSALS, Finisher
from .connection import enter
from .idle import Idle
from .in_flight import Holding
from .lifetime import Lifetime
from .notifier import PROOF, Listener
from .policy_filler import fill_policy

if TYPE_CHECKING:
    from ...lifecycle.claim import Claimed
    from ...session import Session
    from ..executor.runner import Runner
    from ..executor.running_job import RunningJob
    from ..executor.threads import Result
    from ..options import WorkerOptions
    from ..processes.started_jobs import Board
    from ..waker import Waker

__all__ = ["Pump"]

logger = logging.getLogger(__name__)

LONGEST_SLEEP = 1.0  # seconds
BURST_PAUSE = 0.02  # seconds between two looks while the last jobs of a burst run
HOARD_SECONDS = 1.0  # a job that nobody has started after this time goes back: another worker may be free

_TRANSIENT = (psycopg.errors.DeadlockDetected, psycopg.errors.SerializationFailure, *LOCKED)


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
        board: Board,
    ) -> None:
        self.options = options
        self.lifetime = Lifetime(options)
        self.holding = Holding(board)
        self._worker = worker
        self._supervisor = supervisor
        self._runner = runner
        self._waker = waker
        self._board = board
        runner.deadlines.on_overdue = self._give_up
        self._executor = Executor(runner, options.threads, waker)
        self._finder = Finder(options, worker, lease_base)
        self._finisher = Finisher()
        self._idle = Idle(options.queues, conf.current().poll_interval)
        self._pace = Pace(options.threads)
        self._listener = Listener(worker)
        self._outage = Outage()
        self._chores = Chores(options, worker, supervisor, runner, self._listener)
        self._session: Session | None = None
        self._exhausted = False
        self._dispatched_at = 0.0
        self._drained = False

    # -- from outside

    def stop(self, grace: float) -> None:
        """Claim no more, finish what runs within ``grace`` seconds, then end. Safe in a signal handler."""
        self.lifetime.stop(grace)
        self._waker.interrupt()

    def files(self) -> set[int]:
        """The files that are its own: a process that a task forks must not hold them."""
        files = set(self._waker.files())
        session = self._session
        if session is not None and not session.connection.closed:
            files.add(session.connection.fileno())
        return files

    def run(self) -> None:
        """Work until stopped, or in a burst until nothing is due."""
        try:
            try:
                self._connect()
            except LOST_CONNECTION as error:
                self._reconnect(error)
            while not self._over():
                try:
                    self._turn()
                    self._outage.over()
                except _TRANSIENT as error:
                    logger.info("once more after %s", type(error).__name__)
                except LOST_CONNECTION as error:
                    self._reconnect(error)
        finally:
            self._executor.stop()
        self._executor.join(min(1.0, self.lifetime.grace_left()))
        self._end()

    # -- one turn

    def _turn(self) -> None:
        session = self._live_session()
        self._hear(session)
        self._collect()
        if self.lifetime.stopping and not self._drained:
            self._drain()
        now = monotonic()
        self._chores.before_work(session, now)
        self._board.connect(holds_lock=session.holds_lock)  # it may have got it only now
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
            elif word == PROOF:
                self._listener.heard(notification.payload)
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
        if self.lifetime.stopping or not self._idle.due(now):
            return 0
        held = len(self.holding) - len(self._finisher)
        limit = self._pace.wanted(held, running_low=held < self.options.threads)
        left = self.lifetime.jobs_left()
        return limit if left is None else min(limit, left)

    def _exchange(self, session: Session, limit: int, now: float) -> list[Claimed]:
        """Report what is due and claim up to ``limit`` jobs, in one round trip."""
        if self._finisher.try_locked_again(now):
            self._reported(self._finisher.report_one_by_one(session))
        nothing_else_runs = len(self._finisher) == len(self.holding)
        enough = 1 if nothing_else_runs or self.lifetime.stopping else max(1, self._pace.target // 4)
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
        except (*REFUSALS, *LOCKED):
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
        thorough = self.options.burst and not self.holding
        due, next_due = self._finder.search(session, thorough=thorough)
        if due:
            statement = self._finder.claim_statement(self._room(monotonic()))
            (answer,) = session.run(statement)
            rows = self._finder.claimed(answer)
            if rows:
                self._dispatch(session, rows)
                return
        # A job that still runs may enqueue more: a burst looks once again when the last one has ended.
        self._exhausted = not due and not self.holding
        if self.options.burst:
            self._idle.pause(monotonic(), BURST_PAUSE)
        else:
            self._idle.nothing_found(session, monotonic(), next_due)

    def _dispatch(self, session: Session, rows: list[Claimed]) -> None:
        now = monotonic()
        self._idle.found()
        self._exhausted = False
        self.lifetime.claimed += len(rows)
        self._dispatched_at = now
        self.holding.take(rows, now)
        if self.lifetime.stopping:
            # Race: the worker was told to stop while the claim was on its way.
            self._release(rows)
            return
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
            held = self.holding.drop(row)
            if outcome.kind == "release":
                self.lifetime.claimed -= 1
                continue
            began = outcome.started or 0.0
            waited = row.waited + (began - held.since if held and began else 0.0)
            self._chores.counter.add(row, outcome.kind, max(0.0, waited), ran)
            log_job(row, outcome, waited, ran)
            self.lifetime.executed += outcome.kind != "unknown"

    # -- now and then

    def _give_hoard_back(self, now: float) -> None:
        """Jobs that looked quick and are not: what was claimed ahead of them must not wait here."""
        if now - self._dispatched_at > HOARD_SECONDS and len(self.holding) > self.options.threads:
            self._dispatched_at = now
            self._pace.learn([HOARD_SECONDS])
            self._release(self._executor.take_back())

    def _release(self, rows: list[Claimed], reason: str | None = None) -> None:
        """Rows that nobody will run here go back, at the next report, without spending an attempt."""
        self._finisher.add([(row, Outcome(row.id, row.lease, "release", reason=reason), 0.0) for row in rows])

    def _sleep(self, session: Session) -> None:
        if self.holding.is_through() and (self.lifetime.stopping or self._is_worn_out()):
            return
        # Race: a notification that came during the statements of this turn is no longer in the socket, so
        # nothing would end the sleep. It is heard here, and the next turn looks.
        self._hear(session)
        now = monotonic()
        seconds = LONGEST_SLEEP
        if self._finisher:
            seconds = min(seconds, self._finisher.seconds_left(now))
        if not self.lifetime.stopping and self._pace.wanted(
            len(self.holding) - len(self._finisher), running_low=True
        ):
            seconds = min(seconds, self._idle.seconds_left(now))
        if self._executor.rebalance():
            seconds = min(seconds, 0.005)
        if self.lifetime.stopping:
            seconds = min(seconds, self.lifetime.grace_left())
        files = () if session.pooled else (session.connection.fileno(),)
        if seconds > 0:
            self._waker.sleep(seconds, lambda: bool(self._executor.results), *files)

    # -- the end

    def _over(self) -> bool:
        if self.lifetime.stopping:
            gave_back = self._drained or self._session is None
            return (gave_back and self.holding.is_through()) or not self.lifetime.grace_left()
        if self._is_worn_out():
            self.lifetime.replace(float("inf"))  # it drains, however long that takes: nothing is dropped
        return self.options.burst and self._exhausted and not self.holding

    def _give_up(self, running: RunningJob) -> None:
        """A job does not end: its neighbours get the grace, then the process is replaced. From any thread."""
        logger.error(
            "job %s goes on %g s after its timeout: this process finishes what else it runs and is replaced",
            running.row.id,
            conf.current().timeout_grace,
        )
        self.holding.overdue[running.row.id] = running
        self.lifetime.replace(self.options.grace)
        self._waker.interrupt()

    def _is_worn_out(self) -> bool:
        return self.lifetime.is_worn_out(idle=not self.holding)

    def _drain(self) -> None:
        """Give back what nobody has started."""
        self._release(self._executor.take_back())
        self._drained = True
        registry.set_draining(self._live_session(), self._worker)

    def _end(self) -> None:
        """Report the last outcomes, give the rest back without spending an attempt, sign off."""
        self._collect()
        rest = self.holding.rest(self._finisher.ids())
        if rest:
            logger.warning("%d jobs did not finish within the grace and go back to their queues", len(rest))
            once = [row for row in rest if row.on_lost == "fail" and self.holding.may_have_begun(row)]
            self._finisher.add([(row, outcomes.stopped(row, self._worker), 0.0) for row in once])
            self._release([row for row in rest if row not in once], "its worker was stopped")
        # Last of all: until the process ends such a job runs on, while its next attempt may begin.
        overdue = list(self.holding.overdue.values())
        self._finisher.add([(job.row, self._runner.overdue(job), job.ran) for job in overdue])
        while self._session is not None:
            try:
                self._exchange(self._session, 0, float("inf"))
                self._chores.flush(self._session)
                registry.unregister(self._session, self._worker)
                self._session.close()
                return
            except _TRANSIENT as error:
                logger.info("once more after %s", type(error).__name__)
            except LOST_CONNECTION as error:
                self._reconnect(error)
        logger.error(
            "the server is gone; outcomes of %d jobs are lost, they will run again", len(self.holding)
        )

    # -- the connection

    def _live_session(self) -> Session:
        assert self._session is not None
        return self._session

    def _connect(self) -> None:
        session = enter(self.options, self._worker, self._supervisor, self.holding)
        try:
            self._idle.connected(session)
            self._listener.connected(session)
        except psycopg.Error:
            session.close()
            raise
        self._session = session
        self._board.connect(holds_lock=session.holds_lock)

    def _reconnect(self, error: Exception) -> None:
        """Until it succeeds; if the worker stops, until the grace ends or nothing is left to report."""
        self._outage.tell("no connection yet" if self._session is None else "the connection is lost", error)
        self._board.disconnect()
        if self._session is not None:
            self._session.close()
            self._session = None
        while True:
            self._wait(self._outage.pause())
            try:
                self._connect()
            except LOST_CONNECTION as again:
                self._outage.tell("no connection yet", again)
            else:
                return
            if self.lifetime.stopping and not (self.holding and self.lifetime.grace_left()):
                return

    def _wait(self, seconds: float) -> None:
        """Sleep however many jobs end meanwhile; only a stop, or the end of the grace, cuts it short."""
        grace_ends = self.lifetime.grace_ends
        ends = min(monotonic() + seconds, grace_ends)
        while (left := ends - monotonic()) > 0 and self.lifetime.grace_ends == grace_ends:
            self._waker.sleep(left, lambda: False)
