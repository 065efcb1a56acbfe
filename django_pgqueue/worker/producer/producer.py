"""The producer: claims jobs, passes them to the executor, and reports their outcomes. One for each process.

    look:     if there is room and it is time, claim; if nothing is found, search for new ranges, claim again
    report:   collected outcomes, together with the next claim, in one round trip and one commit; if another
              such exchange can follow at once, its answer is taken in while the server works on that one
    sleep:    until outcomes, a notification, a signal, or the next look

When the worker stops, it claims no more jobs, and jobs that have not started are requeued. Running jobs may
finish within the grace period; the rest are requeued without counting an attempt. When the connection is
lost, jobs keep running, outcomes wait, and the producer tries to reconnect forever. Claims whose answer was
lost with the connection are given back.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

import psycopg

from ... import conf
from ...formatting import get_logger
from ...maintenance.limits import DeclaredLimits
from ...postgres.session import LOST_CONNECTION
from ..executor.threads import Executor
from ..registry import Registration
from .accounts import Accounts
from .claimer import Claimer, PolicyFiller
from .completer import LOCKED, Completer, ProgressWriter
from .connection import Connection
from .demand import Demand, OneKind, TwoKinds
from .exchange import Exchange
from .idle import Idle, Looks
from .in_flight import InFlight, Returns
from .leases import Leases
from .lifetime import Lifetime, Overdue
from .notifier import Notifier
from .orders import CancelRequests, Orders
from .pauses import Pauses

if TYPE_CHECKING:
    from ...jobs.claim import Claimed
    from ...postgres.session import Session
    from ..executor.runner import Runner
    from ..options import WorkerOptions
    from ..processes.started_jobs import StartedJobs
    from ..waker import Waker

logger = get_logger(__name__)

LONGEST_SLEEP = 1.0  # seconds

_TRANSIENT = (psycopg.errors.DeadlockDetected, psycopg.errors.SerializationFailure, *LOCKED)


class Producer:
    """The main loop of a worker process."""

    def __init__(
        self,
        options: WorkerOptions,
        *,
        worker: int,
        supervisor: int,
        lease_base: int,
        runner: Runner,
        waker: Waker,
        started_jobs: StartedJobs,
    ) -> None:
        self.options = options
        self.worker = worker
        self.lifetime = Lifetime(options, started_jobs)
        self.in_flight = InFlight(started_jobs)
        self._runner = runner
        self._waker = waker
        runner.on_overdue = Overdue(self.in_flight, self.lifetime, waker, options.grace)
        self._executor = Executor(runner, options.threads, waker, options.async_slots)
        self._pauses = Pauses()
        self._claimer = Claimer(options, worker, lease_base, self._pauses)
        self._completer = Completer()
        self._idle = Idle(options.queues, conf.current().poll_interval)
        self._accounts = Accounts(self.in_flight, self.lifetime)
        self._progress = ProgressWriter(runner.changed)
        self._exchange = Exchange(
            self._claimer, self._completer, self._idle, self._accounts.close, self._dispatch
        )
        self._returns = Returns(worker, runner, self._executor, self.in_flight, self._completer, self._pauses)
        self._policy_filler = PolicyFiller(self._returns.release)
        self._kinds = _kinds(options, self._executor, runner)
        self._demand = Demand(
            self.lifetime, self._kinds, self._idle, self.in_flight, self._completer,
            self._exchange, self._pauses,
        )  # fmt: skip
        self._leases = Leases(
            runner, self._claimer, self.in_flight, self._returns, self._kinds, self.lifetime, options.grace
        )
        self._cancel_requests = CancelRequests(runner, self._leases)
        self._declared_limits = DeclaredLimits()
        self._orders = Orders(
            options, worker, supervisor, pauses=self._pauses, queue_limits=self._claimer.queue_limits,
            runner=runner, returns=self._returns, idle=self._idle, lifetime=self.lifetime,
        )  # fmt: skip
        self._notifier = Notifier(
            worker, self._cancel_requests.name, self._idle.look_now, self._orders.changed
        )
        self._registration = Registration(options, worker, supervisor)
        self._connection = Connection(
            options.alias, worker, self._registration, self.in_flight, self.lifetime, waker, started_jobs,
            self._leases.connected, self._idle.connected, self._notifier.connected, self._orders.connected,
        )  # fmt: skip
        self._looks = Looks(self._claimer, self._idle, self._notifier, self.in_flight, burst=options.burst)
        self._dispatched_at = 0.0
        self._drained = False

    # -- from outside

    def stop(self, grace: float) -> None:
        """Stop claiming, finish running jobs within ``grace`` seconds, then end. Safe in a signal handler."""
        self.lifetime.stop(grace)
        self._waker.interrupt()

    def files(self) -> set[int]:
        """Return the file descriptors that belong to it. A process that a task forks must not keep them."""
        return {*self._waker.files(), *self._connection.files()}

    def run(self) -> None:
        """Work until stopped, or in burst mode until no job is due."""
        try:
            try:
                self._connection.open()
            except LOST_CONNECTION as error:
                self._connection.reopen(error)
            while not self._over():
                try:
                    self._turn()
                    self._connection.works()
                except _TRANSIENT as error:
                    logger.info("trying again after %s", type(error).__name__)
                except LOST_CONNECTION as error:
                    self._exchange.take_in()  # a new session gives back what this worker does not hold
                    self._connection.reopen(error)
        finally:
            self._executor.stop()
        self._executor.join(min(1.0, self.lifetime.grace_left()))
        self._end()

    # -- one turn

    def _turn(self) -> None:
        session = self._connection.live
        # Notifications first, then the look: one that is read after it might be about a job that it missed.
        self._notifier.hear(session)
        self._collect()
        if self.lifetime.stopping and not self._drained:
            self._drain()
        now = monotonic()
        self._progress.write_if_due(session, now)  # before the outcomes, which end leases
        self._registration.tell(len(self.in_flight.lost))
        if self._registration.due(now):
            self._register(session, now)
        self._orders.look(session, now)
        self._connection.tell_supervisor()
        self._cancel_requests.look(session, now)  # before a claim, which may find jobs that it has lost
        limit = self._room(session, now) if self._exchange.may_claim else self._demand.jobs_now(now)
        claimed = self._exchange.run(session, limit, now, self._demand.outcomes())
        self._collect()
        goes_on = claimed > 0 and not session.pooled and self._demand.goes_on_at_once(monotonic())
        if not goes_on:
            self._exchange.take_in()
            nothing = limit > 0 and (not claimed or self._claimer.only_refused)
            if nothing and (rows := self._looks.further(session, self._room)):
                self._dispatch(rows)
        self._follow_up(session, now)
        now = monotonic()
        self._give_hoard_back(now)
        self._accounts.write_if_due(session, now)
        if not goes_on:
            self._sleep(session)

    def _room(self, session: Session, now: float) -> int:
        """Return how many jobs to claim now, by orders that are not too old."""
        limit = self._demand.jobs_now(now)
        is_told = limit > 0 and self._orders.look_before_claim(session, now)  # maybe to end
        return self._demand.jobs_now(now) if is_told else limit

    def _collect(self) -> None:
        results = self._executor.results
        while results:
            done = results.popleft()
            self._completer.add(done)
            self._kinds.learn(done)

    def _register(self, session: Session, now: float) -> None:
        """Register again. Before that, check that notifications arrive; with it, read the orders. Write the
        limits of tasks that something else has imported in the meantime.
        """
        self._exchange.take_in()  # if the lock is taken now, all other running jobs are given back
        proof = self._notifier.prove(now)
        self._orders.follow(self._registration.renew(session, now, self._orders.statement, proof), now)
        self._declared_limits.write(session)
        # Also if it finds no jobs: there may be a million that are not due yet.
        session.refresh_plans(idle=True)

    def _dispatch(self, rows: list[Claimed]) -> None:
        now = monotonic()
        self._idle.found()
        self._looks.exhausted = False
        self.lifetime.claimed += len(rows)
        self._dispatched_at = now
        self.in_flight.take(rows, now)
        self._kinds.weigh(rows)
        if self.lifetime.stopping:
            # Race: the worker was told to stop during the claim.
            self._returns.release(rows)
            return
        rows = self._leases.sort_out(rows)
        runs = self._returns.put_aside(rows)
        self._pauses.note(rows, runs)
        runs, others = self._kinds.split(runs)
        self._returns.release(others)
        self._executor.submit(self._policy_filler.sort_out(runs), self._kinds.job_seconds)

    def _follow_up(self, session: Session, began: float) -> None:
        """Ask the server what dispatched jobs need. They are dispatched while the session is in use."""
        self._declared_limits.write_if_more(session, self._runner.known_tasks)
        if rows := self._policy_filler.fill(session):
            self._executor.submit(rows, self._kinds.job_seconds)
        if self._dispatched_at >= began:
            session.refresh_plans()  # while the jobs run
            if self._claimer.may_search(monotonic()):
                self._claimer.search(session)

    def _sleep(self, session: Session) -> None:
        if self.in_flight.is_through() and (self.lifetime.stopping or self._is_worn_out()):
            return
        # Race: a notification that arrived during the statements of this turn is no longer in the socket, so
        # nothing would end the sleep. It is read here, and the next turn looks.
        self._notifier.hear(session)
        now = monotonic()
        seconds = min(
            LONGEST_SLEEP, self._orders.seconds_left(now), self._progress.seconds_left(now),
            self._cancel_requests.seconds_left(),
        )  # fmt: skip
        if self._completer:
            seconds = min(seconds, self._completer.seconds_left(now))
        if self._demand.jobs():
            seconds = min(seconds, self._idle.seconds_left(now))
        if self._executor.rebalance():
            seconds = min(seconds, 0.005)
        if self.lifetime.stopping:
            seconds = min(seconds, self.lifetime.grace_left())
        files = () if session.pooled else (session.connection.fileno(),)
        if seconds > 0:
            self._waker.sleep(seconds, self._executor.has_urgent_results, *files)

    def _give_hoard_back(self, now: float) -> None:
        """If jobs take longer than expected, requeue the jobs that were claimed ahead."""
        if self._kinds.hoards(self.in_flight.places, now):
            self._returns.release_unstarted()

    def _drain(self) -> None:
        """Requeue the jobs that have not started."""
        self._returns.release_unstarted()
        self._drained = True
        self._registration.set_draining(self._connection.live)

    def _over(self) -> bool:
        if self.lifetime.stopping:
            gave_back = self._drained or self._connection.session is None
            return (gave_back and self.in_flight.is_through()) or not self.lifetime.grace_left()
        if self._is_worn_out():
            self.lifetime.replace(float("inf"))  # it finishes its jobs, however long that takes
        return self._looks.exhausted and not self.in_flight

    def _is_worn_out(self) -> bool:
        return self.lifetime.is_worn_out(all_begun=self.in_flight.all_begun())

    def _end(self) -> None:
        """Report the last outcomes, requeue the rest without counting an attempt, and sign off."""
        self._exchange.take_in()
        self._collect()
        self._returns.abandon_rest()
        while (session := self._connection.session) is not None:
            try:
                self._progress.write(session)
                self._exchange.run(session, 0, float("inf"), 1)
                self._exchange.take_in()
                self._accounts.write(session)
                self._registration.unregister(session)
                session.close()
                return
            except _TRANSIENT as error:
                logger.info("trying again after %s", type(error).__name__)
            except LOST_CONNECTION as error:
                self._connection.reopen(error)
        logger.error("the server is gone; jobs that could not be reported run again: %d", len(self.in_flight))


def _kinds(options: WorkerOptions, executor: Executor, runner: Runner) -> OneKind | TwoKinds:
    if options.async_slots is None:
        return OneKind(options.threads)
    return TwoKinds(options.threads, options.async_slots, executor, runner.is_async)
