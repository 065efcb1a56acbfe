"""The producer claims jobs, passes them to the executor, and reports their outcomes. One for each process.

Each part owns its state: ``Connection`` the session and the registration, ``Inbox`` the orders, ``Claimer``
where to poll for jobs, ``Jobs`` those in flight, ``Reporter`` the outcomes, ``Executor`` the threads.

Reading an answer takes Python about as long as it takes the server to work on the next statements, so under
load, the answer of one exchange is dispatched while the server works on the next one. Nothing else happens to
the jobs in a kept answer, so it is dispatched at once unless the next exchange follows immediately.

When the connection is lost, jobs keep running, outcomes wait, and the producer tries to reconnect forever.
Claims whose answer was lost are requeued.

A running job may lose its row: a crash of the server may lose its claim, and the jobs of a process that was
suspended for longer than its lease are requeued. Their tasks run on:

    held --the row is as it was before the claim--> claimed again under the same lease
    held --otherwise, at two looks in a row--> lost: asked to stop. What its task returns is refused, nothing
    waits for it, and its place is taken until it ends
    all places taken by lost jobs, or a lost one claimed here once more --> the process is replaced
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import Any, NamedTuple

import psycopg

from ... import conf
from ...formatting import get_logger
from ...jobs.claim import Claimed
from ...jobs.finish import Outcome
from ...maintenance.limits import DeclaredLimits
from ...postgres.session import LOST_CONNECTION, Session
from ..executor import outcomes
from ..executor.outcomes import Result
from ..executor.runner import Runner
from ..executor.running_job import RunningJob
from ..executor.threads import BACKLOG_SECONDS, Executor
from ..options import WorkerOptions
from ..sessions import Registration
from ..waker import Waker
from .claimer import Claimer, fill_policies
from .connection import Connection
from .demand import Demand
from .idle import Idle
from .inbox import Inbox
from .jobs import Jobs, Lifetime
from .reporter import COLLECT_SECONDS, LOCKED, REFUSALS, Accounts, Reporter, judged

logger = get_logger(__name__)

LONGEST_SLEEP = 1.0  # seconds
LARGE = 50  # outcomes take the server longer than Python needs to prepare for their exchange
BURST_PAUSE = 0.02  # seconds between two looks while the last jobs of a burst run
KEY_PAUSE = 0.02  # the same at jobs that the gate left where they are: another worker decides about their key
ROOM_PAUSE = 0.05  # the same at a queue that has no room: a worker gets no message when it has
_TRANSIENT = (psycopg.errors.DeadlockDetected, psycopg.errors.SerializationFailure, *LOCKED)


class _Rows(NamedTuple):
    """The rows that a statement returned. Reading them is what takes time."""

    number: int = 0
    read: Callable[[], Sequence[Any]] = tuple


class _Answer(NamedTuple):
    """What the server has answered to a report and a claim."""

    report: _Rows
    claim: _Rows
    results: list[Result]  # the ones that were reported
    asked: Mapping[str, Any]  # the parameters of the claim
    seconds: float  # that the exchange took


class Producer:
    """One loop per worker process: claim, dispatch, run, report, sleep."""

    def __init__(self, options: WorkerOptions, supervisor: int, runner: Runner) -> None:
        worker, started_jobs = runner.worker, runner.started_jobs
        self.options = options
        self.worker = worker
        self.lifetime = Lifetime(options, started_jobs)
        self.jobs = Jobs(started_jobs)
        self._runner = runner
        self._waker = Waker()
        runner.on_overdue = self._give_up_on
        self._executor = Executor(runner, options.threads, self._waker, options.async_slots)
        self._inbox = Inbox(worker, supervisor, runner)
        self._orders = self._inbox.orders
        self._claimer = Claimer(options, worker, self._orders)
        self._reporter = Reporter()
        self._progress = runner.progress
        # Jobs that wait until the session can be used: for their policy, or to know if they are paused.
        self._without_policy: list[Claimed] = []
        self._unasked: list[Claimed] = []
        self._accounts = Accounts()
        self.interrupted = 0  # jobs that had not finished when it ended
        self._idle = Idle(options.queues, conf.current().poll_interval)
        self._demand = Demand(options.threads, options.async_slots, self._executor, runner.is_async)
        self._declared_limits = DeclaredLimits()
        self._registration = Registration(options, worker, supervisor)
        self._connection = Connection(
            self._registration, self.jobs, self.lifetime, self._waker, started_jobs, self._set_up
        )
        self._answer: _Answer | None = None  # that has not been dispatched yet
        self._dispatched_at = 0.0
        self._drained = False
        self._is_exhausted = False  # nothing was due and no job ran, at the last look in burst mode

    def stop(self, grace: float) -> None:
        """Stop claiming, finish running jobs within ``grace`` seconds, then end. Safe in a signal handler."""
        self.lifetime.stop(grace)
        self._waker.interrupt()

    def files(self) -> set[int]:
        """Return the file descriptors that belong to it. A process that a task forks must not keep them."""
        return {*self._waker.files(), *self._connection.files(), *self._runner.started_jobs.files()}

    def run(self) -> None:
        """Work until stopped, or in burst mode until no job is due."""
        try:
            self._connection.reopen()
            while not self._is_over():
                try:
                    self._turn()
                    self._connection.outage.over()
                except _TRANSIENT as error:
                    logger.info("trying again after %s", type(error).__name__)
                except LOST_CONNECTION as error:
                    self._dispatch()  # a new session requeues what this worker does not hold
                    self._connection.reopen(error)
        finally:
            self._executor.stop()
        self._executor.join(min(1.0, self.lifetime.grace_left()))
        self._shut_down()

    def _set_up(self, session: Session) -> None:
        # Before others, which may have the same limit keys, it claims again what the server lost in a crash.
        self._claimer.claim_again(session, self.jobs.rows())
        self._idle.connected()
        self._inbox.connected(session)

    # -- one turn

    def _turn(self) -> None:
        session = self._connection.live
        # Race: a notification that is read after the look may be about a job that the look has missed.
        self._hear(session)
        self._collect()
        if self.lifetime.stopping and not self._drained:
            self._reporter.release(self._executor.take_back())  # the jobs that have not started
            self._drained = True
            self._registration.set_draining(session)
        now = monotonic()
        self._progress.write_if_due(session, now)  # before the outcomes, which end leases
        self._keep_registered(session, now)
        # A sleeping worker without a notification only searches for jobs: one statement instead of two.
        may_claim = self._claimer.knows_ranges and (self._idle.called or not self._idle.announced)
        room = self._room_after_orders(session, now, claims=may_claim)
        self._connection.tell_supervisor()
        self._keep_leases(session, now)  # before a claim, which may find jobs that it has lost
        claimed = self._report_and_claim(session, room if may_claim else 0, now)
        self._collect()
        goes_on = claimed > 0 and not session.pooled and self._goes_on_at_once(monotonic())
        if not goes_on:  # otherwise, this answer is dispatched while the server works on the next exchange
            self._dispatch()
            if room > 0 and (not claimed or self._claimer.only_refused):
                self._search(session)
        self._complete(session, now)
        now = monotonic()
        if self._demand.hoards(self.jobs.places, now):
            self._reporter.release(self._executor.take_back())
        self._accounts.write(session, now)
        if not goes_on:
            self._sleep(session)

    def _hear(self, session: Session) -> None:
        if self._inbox.hear(session):
            self._idle.look_now()

    def _collect(self) -> None:
        """Take over the results of jobs that have ended."""
        results = self._executor.results
        while results:
            done = results.popleft()
            self._reporter.add(done)
            self._demand.learn(done)

    def _keep_registered(self, session: Session, now: float) -> None:
        """Register again if it is time, and read the orders with it."""
        if not self._registration.due(now, len(self.jobs.lost)):
            return
        self._dispatch()  # if the lock is taken now, all other running jobs are requeued
        self._connection.settle()
        proof = self._inbox.prove(now)
        orders = self._registration.renew(session, now, self._inbox.orders_sql, proof)
        self._inbox.learn_orders(orders, now)
        self._follow_orders()
        self._declared_limits.write(session)  # of tasks that something else has imported in the meantime
        # Also if it finds no jobs: there may be a million that are not due yet.
        session.refresh_plans(idle=True)

    def _follow_orders(self) -> None:
        if self._orders.pause_began:
            taken = self._executor.take_back()
            if self._orders.is_narrow:
                self._unasked += taken
            else:
                self._executor.submit(self._put_paused_aside(taken, self._orders.reasons(taken)), 0.0)
        if self._orders.pauses_ended:
            self._idle.look_now()
        for how in self._orders.drains:
            if how == "stop" and not self.lifetime.retired:
                logger.info("asked to stop this worker with all its processes")
                self.lifetime.stop(self.options.grace, retired=True)
            elif how == "replace" and not self.lifetime.stopping:
                logger.info("asked to let another process replace this one")
                self.lifetime.stop(self.options.grace, replaced=True)

    def _keep_leases(self, session: Session, now: float) -> None:
        """Claim running jobs again whose rows do not say that they run here. Ask the lost ones to stop."""
        missing = self._inbox.look_at_running(session, now)
        if missing is None:
            return
        missing = [job for job in missing if job.needs_lease and job.row.id not in self.jobs.lost]
        # An isolated job may have given up its lease by itself, which only its own process knows.
        again = self._claimer.claim_again(session, [job.row for job in missing if job.send is None])
        for job in self.jobs.lose({job for job in missing if job.row.id not in again}):
            logger.warning(
                "job %s (%s) is lost: it was given back while its task ran. The task is asked to stop, and "
                "what it returns does not count.", job.row.id, job.row.task_path,
            )  # fmt: skip
            job.ask_to_stop()
            if self._demand.is_filled_by([row.task_path for row in self.jobs.lost.values()]):
                self._replace("lost jobs take all its threads")

    # -- claim and report

    def _room(self, now: float) -> int:
        """Return how many jobs to claim now."""
        if self.lifetime.stopping or self._idle.seconds_left(now):
            return 0
        kept = self._answer.claim.number if self._answer else 0
        limit = self._orders.limit(self._demand.wanted(self._held(), kept))
        left = self.lifetime.jobs_left()
        return limit if left is None else min(limit, left)

    def _room_after_orders(self, session: Session, now: float, *, claims: bool = True) -> int:
        """Return how many jobs to claim now, by orders that are not too old. They may be to end."""
        room = self._room(now)
        if self._inbox.read_orders(session, now, claims=claims and room > 0):
            self._follow_orders()
            room = self._room(now)
        return room

    def _held(self) -> int:
        """Return how many jobs are claimed and have not ended."""
        held = self.jobs.places - len(self._reporter)
        return held + self._answer.claim.number - len(self._answer.results) if self._answer else held

    def _enough(self) -> int:
        """Return how many outcomes are enough for a report."""
        return 1 if self.lifetime.stopping or not self._held() else max(1, self._demand.target // 2)

    def _patience(self) -> float:
        """Return for how many seconds outcomes may wait for others, so that many share one commit."""
        return BACKLOG_SECONDS if self._executor.has_backlog else COLLECT_SECONDS

    def _goes_on_at_once(self, now: float) -> bool:
        """Return whether the next report and claim can be sent now, and are large enough to be worth it."""
        if self.lifetime.jobs_left() is not None:
            return False  # only dispatched jobs are counted
        return len(self._reporter) >= max(LARGE, self._enough()) and self._room(now) > 0

    def _report_and_claim(self, session: Session, room: int, now: float) -> int:
        """Report the outcomes that are due, and claim up to ``room`` jobs, in one round trip and one commit.
        Return how many were claimed. The answer is kept until ``_dispatch``.

        An outcome that the server refuses must not hold up the rest. In that case the outcomes are reported
        one by one, and the claim waits for the next turn.
        """
        if self._reporter.readd_locked(now):
            self._close(self._reporter.report_one_by_one(session))
        is_due = self._reporter.due(now, self._enough(), self._patience())
        report = self._reporter.statement() if is_due else None
        if is_due and report is None:  # the rows of all waiting results show their outcomes already
            self._close(judged(self._reporter.sent(), []))
        claim = self._claimer.statement(room) if room else None
        if report is None and claim is None:
            self._dispatch()
            return 0
        began = monotonic()
        try:
            answers = self._send(session, self._idle.release(), report, claim, durable=report is not None)
        except (*REFUSALS, *LOCKED):
            if report is None:
                raise
            self._close(self._reporter.report_one_by_one(session))
            return 0
        claimed, asked = (answers.pop(), claim[1]) if claim is not None else (_Rows(), {})
        reported, results = (answers.pop(), self._reporter.sent()) if report is not None else (_Rows(), [])
        self._answer = _Answer(reported, claimed, results, asked, monotonic() - began)
        return claimed.number

    def _send(self, session: Session, *given: tuple[str, Any] | None, durable: bool) -> list[_Rows]:
        """Send the statements, and dispatch the answer that was kept while the server works on them."""
        statements = filter(None, given)
        if self._answer is None or session.pooled:
            self._dispatch()
            return [_Rows(len(rows), rows.copy) for rows in session.run(*statements, durable=durable)]
        try:
            cursors = session.run_beside(self._dispatch, *statements, durable=durable)
        finally:
            self._dispatch()  # if the statements could not be sent
        return [_Rows(cursor.rowcount, cursor.fetchall) for cursor in cursors]

    # -- dispatch

    def _dispatch(self) -> None:
        """Read the answer that was kept, if there is one: close the reported jobs, and run the claimed ones.

        This must not use the session: the server may be at work for the next exchange.
        """
        answer, self._answer = self._answer, None
        if answer is None:
            return
        if answer.results:  # first, to free their rows
            self._close(judged(answer.results, answer.report.read()), answer.seconds)
        if answer.asked:
            self._start(self._claimer.claimed(answer.claim.read(), answer.asked, answer.seconds))

    def _close(self, results: list[Result], seconds: float = 0.0) -> None:
        """Close the jobs with these results, which the server knows."""
        if seconds and logger.isEnabledFor(logging.DEBUG):
            kinds = Counter(result.outcome.kind for result in results)
            logger.debug(
                "reported %d jobs in %.1f ms%s",
                len(results), seconds * 1000,
                "".join(f", {count} {kind}" for kind, count in kinds.most_common()),
            )  # fmt: skip
        for result in results:
            claimed_at = self.jobs.remove(result.row)
            kind = result.outcome.kind
            if kind in {"release", "paused"}:
                self.lifetime.claimed -= 1
                continue
            self._accounts.close(result, claimed_at)
            if kind != "unknown":
                self.lifetime.executed += 1

    def _start(self, rows: list[Claimed]) -> None:
        """Pass claimed jobs to the executor, and requeue the ones that should not run here."""
        if not rows:
            return
        now = self._dispatched_at = monotonic()
        self._idle.found()
        self._is_exhausted = False
        self.lifetime.claimed += len(rows)
        self.jobs.add(rows, now)
        self._demand.weigh(rows)
        if self.lifetime.stopping:
            # Race: the worker was asked to stop during the claim.
            self._reporter.release(rows)
            return
        rows = self._without_running(rows)
        if self._orders.is_narrow:
            self._unasked += rows
        else:
            self._start_unless_paused(rows, self._orders.reasons(rows))

    def _start_unless_paused(self, rows: list[Claimed], reasons: dict[int, str]) -> None:
        """Pass jobs to the executor, unless a pause holds them. ``reasons``: of the jobs that one holds."""
        runs = self._put_paused_aside(rows, reasons)
        self._orders.note(rows, runs)
        runs, others = self._demand.split(runs)
        self._reporter.release(others)
        if without := [row for row in runs if row.on_lost is None]:
            self._without_policy += without
            runs = [row for row in runs if row.on_lost is not None]
        self._executor.submit(runs, self._demand.sync.job_seconds)

    def _without_running(self, rows: list[Claimed]) -> list[Claimed]:
        """Requeue the rows that run here under an older lease, and return the others."""
        running = self._runner.running.get
        twice = [row for row in rows if (old := running(row.id)) and old.needs_lease and old.send is None]
        if not twice:
            return rows
        self._reporter.release(twice, "an earlier run of it has not ended in this process")
        self._replace("it still runs a job that it has claimed once more")
        return [row for row in rows if row not in twice]

    def _put_paused_aside(self, rows: list[Claimed], reasons: dict[int, str]) -> list[Claimed]:
        """Block rows that have a reason, uncounted, and requeue rows of paused queues. Return the others."""
        if not self._orders.has_pauses:
            return rows
        runs: list[Claimed] = []
        for row in rows:
            if (reason := reasons.get(row.id)) is not None:
                self._reporter.add([Result(row, Outcome(row.id, row.lease, "paused", reason=reason))])
            elif self._orders.stops(row.queue_name):
                self._reporter.release([row])
            else:
                runs.append(row)
        return runs

    def _complete(self, session: Session, began: float) -> None:
        """Ask the server what dispatched jobs need. They are dispatched while the session is in use."""
        self._declared_limits.write(session, self._runner.known_tasks)
        rows, self._unasked = self._unasked, []
        try:
            if rows:
                self._start_unless_paused(rows, self._orders.ask(session, [row.id for row in rows]))
            rows, self._without_policy = self._without_policy, []
            if rows:
                rows = fill_policies(session, rows)
        except psycopg.Error:
            self._reporter.release(rows)  # the worker holds them, but no worker will run them
            raise
        if rows:
            self._executor.submit(rows, self._demand.sync.job_seconds)
        if self._dispatched_at >= began:
            session.refresh_plans()  # while the jobs run
            if self._claimer.may_search(monotonic()):
                self._claimer.search(session)

    # -- search and sleep

    def _search(self, session: Session) -> None:
        """Search for new ranges after known ones gave nothing, and claim there, or say when to look next."""
        if self._claimer.last_refusals().moved:
            self._idle.look_in(0.0)  # others may be claimable now
            return
        due, next_due = self._claimer.search(
            session,
            self._inbox.named_queues(),
            asleep=self._idle.announced,
            thorough=self.options.burst and not self.jobs,
        )
        room = self._room_after_orders(session, monotonic()) if due else 0
        if room and (rows := self._claimer.claim(session, room)):
            self._start(rows)
            return
        refusals = self._claimer.last_refusals()
        if self.options.burst:
            # A running job may enqueue more: the worker looks again when the last one has ended.
            self._is_exhausted = not due and not self.jobs
            self._idle.look_in(BURST_PAUSE)
        elif any(refusals):
            self._idle.look_in(0.0 if refusals.moved else KEY_PAUSE)
        elif due and self._orders.limits:
            self._idle.look_in(ROOM_PAUSE)
        else:
            hears, rest = self._inbox.hears, self._claimer.rest
            self._idle.nothing_found(session, monotonic(), next_due, hears=hears, rest=rest)

    def _sleep(self, session: Session) -> None:
        if self.jobs.only_overdue() and (self.lifetime.stopping or self.lifetime.is_worn_out(self.jobs)):
            return
        # Race: a notification that arrived during the statements of this turn is no longer in the socket, so
        # nothing would end the sleep. It is read here, and the next turn looks.
        self._hear(session)
        now = monotonic()
        seconds = min(
            LONGEST_SLEEP,
            self._inbox.seconds_left(now),
            self._progress.seconds_left(now),
            self._reporter.seconds_left(now, self._patience()),
            self._executor.rebalance(),
        )
        if self._room(float("inf")):
            seconds = min(seconds, self._idle.seconds_left(now))
        if self.lifetime.stopping:
            seconds = min(seconds, self.lifetime.grace_left())
        files = () if session.pooled else (session.connection.fileno(),)
        if seconds > 0:
            self._waker.sleep(seconds, self._executor.has_urgent_results, *files)

    # -- the end

    def _is_over(self) -> bool:
        if self.lifetime.stopping:
            has_drained = self._drained or self._connection.session is None
            return (has_drained and self.jobs.only_overdue()) or not self.lifetime.grace_left()
        if self.lifetime.is_worn_out(self.jobs):
            self.lifetime.stop(float("inf"), replaced=True)  # it finishes its jobs, however long that takes
        return self._is_exhausted and not self.jobs

    def _replace(self, why: str) -> None:
        if not self.lifetime.stopping:
            logger.warning("this process finishes its other jobs and is replaced: %s", why)
            self.lifetime.stop(self.options.grace, replaced=True)

    def _give_up_on(self, running: RunningJob) -> None:
        """Have the process replaced, which alone ends this job, after the others. Called on any thread."""
        # Not an error: the job's own line says whether it failed, and why.
        logger.warning(
            "job %s still runs %g s after its timeout: this process finishes its other jobs and is replaced",
            running.row.id, conf.current().timeout_grace,
        )  # fmt: skip
        self.jobs.overdue[running.row.id] = running
        self.lifetime.stop(self.options.grace, replaced=True)
        self._waker.interrupt()

    def _shut_down(self) -> None:
        """Report the last outcomes, and unregister. Requeue the jobs that still run, without counting an
        attempt. Fail jobs that must not run twice or are overdue.
        """
        self._dispatch()
        self._collect()
        reported, overdue = self._reporter.ids(), self.jobs.overdue
        rest = [row for row in self.jobs.rows() if row.id not in reported and row.id not in overdue]
        if rest:
            self.interrupted = len(rest)
            logger.warning("requeuing jobs that did not finish within the grace period: %d", len(rest))
            begun = self._runner.started_jobs.begun()  # None: that could not be noted
            once = [row for row in rest if row.on_lost == "fail" and (begun is None or row.id in begun)]
            self._reporter.add([Result(row, outcomes.stopped(row, self.worker)) for row in once])
            self._reporter.release([row for row in rest if row not in once], "its worker was stopped")
        # Last of all: such a job runs until the process ends, and its next attempt may start before that.
        self._reporter.add([self._runner.overdue(job) for job in list(overdue.values())])
        while (session := self._connection.session) is not None:
            try:
                self._progress.write(session)
                self._report_and_claim(session, 0, float("inf"))
                self._dispatch()
                self._accounts.write(session, monotonic(), is_last=True)
                self._registration.unregister(session)
                session.close()
                return
            except _TRANSIENT as error:
                logger.info("trying again after %s", type(error).__name__)
            except LOST_CONNECTION as error:
                self._connection.reopen(error)
        logger.error("connection lost; %d unreported jobs will run again", len(self.jobs))
