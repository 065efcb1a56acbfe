"""Run one job: find its task, call it in its own context, and turn what happens into an outcome."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack, contextmanager
from contextvars import copy_context
from functools import partial
from inspect import iscoroutinefunction
from time import monotonic
from typing import TYPE_CHECKING, Any

from django.db import connections, transaction
from django.db.transaction import TransactionManagementError
from django.db.utils import IntegrityError, OperationalError

from ... import conf
from ...context import restored
from ...encoding import load
from ...exceptions import TaskTimeout, UnknownTask
from ...formatting import get_logger
from ...jobs.call import check_atomic
from ...jobs.current import RUNNING
from ...jobs.finish import FINISH_ONE_SQL, Outcome, finish_one_parameters
from ...monitoring import sentry, tracing
from ...tasks.hooks import around_attempt
from ...tasks.task import find_task
from . import outcomes
from .calls import await_task, call_task
from .connections import drop_dead, left_open, tidy_up
from .errors import Failure, note_step, user_frames
from .hooks import call_within
from .log_capture import capture_of, capturing
from .lost_transactions import (
    LostTransactions,
    is_lost_lease,
    is_serialization_failure,
    one_transaction,
    session_of,
)
from .outcomes import Result
from .progress import Changed
from .running_job import RunningJob
from .timeouts import Timeouts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from ...jobs.claim import Claimed
    from ...tasks.task import Task
    from ..processes.started_jobs import StartedJobs
    from .isolation import Isolation
    from .outcomes import Backoffs
    from .payloads import Companions
    from .task_signals import Announcer

logger = get_logger(__name__)


if TYPE_CHECKING:
    HandOver = Callable[[list[RunningJob]], None]


_SERIALIZATION_TRIES = 5


class Runner:
    """Runs the jobs of one worker process. Used by many threads at the same time."""

    _enforces_timeouts = True

    def __init__(
        self,
        alias: str,
        worker: int,
        announcer: Announcer,
        started_jobs: StartedJobs,
        isolation: Isolation | None = None,
    ) -> None:
        around_attempt()  # a setting that names nothing must not fail the jobs one by one
        self.alias = alias
        self.worker = worker
        self.backoffs: Backoffs = {}
        self.timeouts = Timeouts(alias, started_jobs)
        self.on_overdue: Callable[[RunningJob], None] = lambda _: None
        """Called on any thread with a job that still runs after its timeout and the grace period."""
        self.changed = Changed()  # the running jobs that have something to tell
        self._started_jobs = started_jobs
        self._isolation = isolation
        self._announcer = announcer
        self._tasks: dict[str, Task[..., Any]] = {}
        self._async_paths: set[str] = set()
        self._unknown = FirstMet()
        self._lost_transactions = LostTransactions(alias)
        self._running: dict[int, RunningJob] = {}

    def perform(self, row: Claimed, hand_over: HandOver, companions: Companions) -> Result | None:
        """Run a job on this thread. If it is async, pass it to ``hand_over`` instead and return None.

        claimed --it expired, or its task is unknown--> an outcome without a run
        claimed --it has crashed before--> runs isolated, in its own process, while this thread waits
        claimed --its task is a coroutine function--> handed over
        claimed --otherwise--> runs on this thread
        """
        began = monotonic()
        try:
            ready = self._prepare(row)
            if isinstance(ready, Result):
                return ready._replace(ran=monotonic() - began)
            if row.crash_count > 0 and self._isolation is not None:
                outcome = self._run_isolated(ready)
            elif row.task_path in self._async_paths:
                hand_over([ready])
                return None
            else:
                if ready.task.payload is not None:
                    ready.companions = companions
                outcome = self._run(ready)
            return Result(row, outcome, monotonic() - began, ready.reported, ready.take_failure())
        except BaseException as error:  # a bug of the worker must neither end the thread nor lose the job
            logger.exception("job %s is requeued because of an error in the worker", row.id)
            return Result(row, outcomes.worker_failed(row, error), monotonic() - began)

    def find(self, task_path: str) -> Task[..., Any]:
        """Find a task, which may import modules. Raises ``UnknownTask``."""
        task = find_task(task_path)
        if iscoroutinefunction(task.func):
            # This comes first: a path that is not in there belongs to a sync task if the task is known.
            self._async_paths.add(task_path)
        self._tasks[task_path] = task
        return task

    @property
    def known_tasks(self) -> int:
        """How many tasks it has found so far. Their modules are imported."""
        return len(self._tasks)

    def is_async(self, task_path: str) -> bool | None:
        """Return whether a task is async; None if it has not been found yet."""
        # The order matters as in ``async_jobs``.
        return task_path in self._async_paths if task_path in self._tasks else None

    def async_jobs(self, rows: list[Claimed]) -> tuple[list[RunningJob], list[Claimed]]:
        """Return the jobs that can be handed over without a thread, ready to run, and the rows of the others.

        These are the jobs for which ``perform`` would do nothing else: the task has been found before, so
        that this imports nothing, and the job has neither expired nor crashed. If one of the tasks has not
        been found yet, all rows go to threads: the jobs of the other tasks would overtake it.
        """
        if not self._async_paths:
            return [], rows
        jobs, others = [], []
        for row in rows:
            # Race: a thread may be finding the task. It adds to ``_async_paths`` before ``_tasks``.
            task = self._tasks.get(row.task_path)
            if task is None:
                return [], rows
            if row.task_path not in self._async_paths or row.expired or row.crash_count:
                others.append(row)
            else:
                jobs.append(RunningJob(row, task, self.worker, self.alias, self.changed))
        return jobs, others

    async def run_async(self, running: RunningJob) -> None:
        """Run a coroutine task on the event loop, as its own asyncio task, and set ``running.outcome``.

        It returns nothing, because the return value is lost if a GeneratorExit reaches the asyncio task.
        """
        # Race: the job can be cancelled as soon as it is among the running ones, so this comes first.
        running.coroutine = asyncio.current_task()
        self._begin(running)
        RUNNING.set(running)
        try:
            with surroundings(running) as running.scope:
                try:
                    self._announcer.started(running)
                    running.outcome = self._succeeded(running, await await_task(running))
                except BaseException as error:
                    running.outcome = self._failed(running, error)
        finally:
            self._end(running)

    def running(self) -> Iterator[RunningJob]:
        """Return the jobs that are running now."""
        return iter(list(self._running.values()))

    def running_one(self, job_id: int) -> RunningJob | None:
        """Return a job if it is running here."""
        return self._running.get(job_id)

    def runs(self, job_id: int) -> bool:
        """Return whether a job is running here."""
        return job_id in self._running

    def cancel(self, job_id: int) -> bool:
        """Ask a job to stop. Return whether it is running here."""
        running = self._running.get(job_id)
        if running is not None and running.ask_to_stop():
            logger.info("job %s was asked to stop", job_id)
        return running is not None

    def overdue(self, running: RunningJob) -> Result:
        """Return the result of a job that still runs after its timeout and the grace period."""
        try:
            raise TaskTimeout("the task did not end after its timeout, so its process was replaced")
        except TaskTimeout as error:
            outcome = self._ended_from_outside(running, error)
        return Result(running.row, outcome, running.ran, failure=running.take_failure())

    def tidied(self, running: RunningJob, outcome: Outcome, unsaved: list[str]) -> Outcome:
        """Return the outcome now that the thread is tidied up. A task that has returned is not done if it has
        left open the transactions in which it wrote to the databases ``unsaved``.
        """
        if not unsaved or outcome.kind != "done" or running.reported:
            return outcome
        try:
            raise left_open(unsaved)
        except TransactionManagementError as error:
            return self._failed(running, error)

    def _prepare(self, row: Claimed) -> RunningJob | Result:
        """Return the job ready to run, or its result if it cannot run."""
        if row.expired:
            return Result(row, outcomes.expired(row))
        try:
            task = self._tasks.get(row.task_path) or self.find(row.task_path)
        except UnknownTask as error:
            outcome = outcomes.unknown_task(row, self.worker, error, self._unknown.seconds_since(row.id))
            return Result(row, outcome, failure=Failure(error.with_traceback(user_frames(error))))
        return RunningJob(row, task, self.worker, self.alias, self.changed)

    def _run(self, running: RunningJob) -> Outcome:
        """Run a sync task on this thread."""
        drop_dead()
        self._begin(running)
        try:
            outcome = copy_context().run(self._call, running)
        finally:
            self._end(running)
            unsaved = tidy_up()
        return self.tidied(running, outcome, unsaved)

    def _run_isolated(self, running: RunningJob) -> Outcome:
        """Run a job, sync or async, in its own process, and wait for its end on this thread."""
        assert self._isolation is not None
        self._running[running.row.id] = running  # it may be asked to stop before it has started
        begun = partial(self._begin, running, self._isolation.kill)
        try:
            outcome = self._isolation.run(running, self.backoffs, begun)
            running.progress.end(outcome.kind)
            return outcome
        except TaskTimeout as error:
            return self._ended_from_outside(running, error)
        finally:
            self._end(running)
            tidy_up()

    def _begin(self, running: RunningJob, on_overdue: Callable[[RunningJob], None] | None = None) -> None:
        """Record that the job starts. ``on_overdue`` is used instead of ``self.on_overdue``."""
        row = running.row
        # This comes first: a job that may have started counts as started.
        self._started_jobs.begin(row.id)
        self._running[row.id] = running
        running.started = monotonic()
        if row.timeout is not None and self._enforces_timeouts:
            overdue = partial(on_overdue or self.on_overdue, running)
            running.timeout = self.timeouts.begin(row, row.timeout, overdue, running.coroutine)

    def _end(self, running: RunningJob) -> None:
        if running.timeout is not None:
            self.timeouts.end(running.timeout)
        # A job that lost its lease may have been claimed again in the meantime and run here a second time.
        if self._running.get(running.row.id) is running:
            del self._running[running.row.id]

    def _call(self, running: RunningJob) -> Outcome:
        RUNNING.set(running)
        with surroundings(running) as running.scope:
            try:
                self._announcer.started(running)
                if running.task.atomic:
                    return call_within(running, self._run_atomic)
                return self._succeeded(running, call_within(running, call_task))
            except BaseException as error:  # the task raised it, even SystemExit and KeyboardInterrupt
                if running.reported:  # a hook raised it, after the commit
                    assert running.outcome is not None
                    self._hook_failed(running, error)
                    return running.outcome
                undone = self._undone(running, error) if running.task.atomic else None
                return undone or self._failed(running, error)

    def _run_atomic(self, running: RunningJob) -> Outcome:
        """Run the body and the finish in one transaction. A refused finish raises, so all is rolled back."""
        check_atomic(running.task, self.alias)
        for attempt in range(1, _SERIALIZATION_TRIES + 1):
            try:
                value, outcome = self._commit(running)
            except (OperationalError, ExceptionGroup) as error:
                if not is_serialization_failure(error) or attempt == _SERIALIZATION_TRIES:
                    raise
                logger.info("job %s: serialization failure; retrying the transaction", running.row.id)
            else:
                self._announcer.succeeded(running, value)  # not before the commit
                running.reported, running.outcome = True, outcome
                return outcome
        raise AssertionError("the last attempt returns or raises")  # pragma: no cover

    def _undone(self, running: RunningJob, error: BaseException) -> Outcome | None:
        """Return the outcome of an atomic task whose transaction was undone, if that is not its failure."""
        if not (isinstance(error, IntegrityError) and is_lost_lease(error)):
            return self._lost_transactions.outcome(running, error)
        logger.warning("job %s lost its lease; its work was rolled back: %s", running.row.id, error)
        # Reported as a failed attempt, and refused if the lease is lost. But the row of a task that has
        # deleted its own row is back after the rollback, and still running.
        return outcomes.unsuccessful(running, error, self.backoffs)

    def _commit(self, running: RunningJob) -> tuple[Any, Outcome]:
        """Call the task and write the end of its job. Once both are committed, the job is done, whatever a
        function raises that was to be called after the commit.
        """
        connection = connections[self.alias]
        if not connection.in_atomic_block and not connection.get_autocommit():
            # atomic() would leave the commit to whoever has changed this.
            connection.commit()
            connection.set_autocommit(True)
        running.session, running.is_finishing = None, False
        committed: list[bool] = []
        try:
            with transaction.atomic(using=self.alias), one_transaction(self.alias):
                # The first of these functions: one that raises keeps those behind it from being called.
                transaction.on_commit(partial(committed.append, True), using=self.alias)
                running.session = session_of(self.alias)
                value = call_task(running)
                outcome = outcomes.succeeded(running, value)
                parameters = finish_one_parameters(outcome, conf.current().keep_errors)
                running.is_finishing = True
                with connection.cursor() as cursor:
                    cursor.execute(FINISH_ONE_SQL, parameters)
        except BaseException:
            if not committed:
                raise
            log_failed_callback(running)
        return value, outcome

    def _succeeded(self, running: RunningJob, value: Any) -> Outcome:
        outcome = outcomes.succeeded(running, value)
        self._announcer.succeeded(running, value)
        return outcome

    def _ended_from_outside(self, running: RunningJob, error: TaskTimeout) -> Outcome:
        note_step(error, running.progress.step)
        return self._failed(running, error)

    def _failed(self, running: RunningJob, error: BaseException) -> Outcome:
        """Return the outcome. Call this while the exception is being handled."""
        outcome = outcomes.unsuccessful(running, error, self.backoffs)
        if outcome.error is not None:
            self._announcer.failed(running, outcome.error)
        return outcome

    def _hook_failed(self, running: RunningJob, error: BaseException) -> None:
        """Log an exception with which a hook was left after the transaction of the job was committed."""
        logger.error(
            "job %s (%s) is done, and its transaction is committed, but a hook of AROUND_ATTEMPT raised an "
            "exception after that.",
            running.row.id,
            running.row.task_path,
            exc_info=error,
        )


def log_failed_callback(running: RunningJob) -> None:
    """Log the exception that is being handled, which an ``on_commit`` function of a done job has raised."""
    logger.exception(
        "job %s (%s) is done, but a function that it has passed to on_commit() raised an exception. Such "
        "functions behind it were not called.",
        running.row.id,
        running.row.task_path,
    )


# ----------------------------------------------------------------------------
# Remember when this process first met a job whose task it does not know.

_MOST = 100_000  # jobs to remember; there is a limit because they may end in other workers


class FirstMet:
    """The times by job. Used by many threads at the same time."""

    def __init__(self) -> None:
        self._times: dict[int, float] = {}

    def seconds_since(self, job_id: int) -> float:
        """Return the seconds since the first call for a job."""
        if len(self._times) > _MOST:
            self._times.clear()
        now = monotonic()
        return now - self._times.setdefault(job_id, now)


# ----------------------------------------------------------------------------
# What surrounds the body of a task: Sentry's scope, the context of the enqueue, a span, the log capture.
#
# A job that has none of this, in a project that has no OpenTelemetry, gets only Sentry's scope.


def surroundings(running: RunningJob) -> AbstractContextManager[Any]:
    """Return the context manager in which the task runs. Its value is the scope, or None without Sentry.

    It is entered in a ``contextvars`` context of the job's own, after the job has become the current one.
    """
    row = running.row
    if (log := capture_of(running.task.capture_logs, row.queue_name)) is not None:
        running.log = log
    if row.context is None and running.log is None and not tracing.in_use():
        return sentry.job_scope(row)
    return _surrounded(running)


@contextmanager
def _surrounded(running: RunningJob) -> Iterator[Any]:
    row = running.row
    context = load(row.context) if row.context is not None else {}
    if not isinstance(context, dict):
        logger.warning("job %s runs without its context, which is nested too deeply for Python", row.id)
        context = {}
    with ExitStack() as stack:
        scope = stack.enter_context(sentry.job_scope(row))
        stack.enter_context(restored(context))
        if running.log is not None:
            stack.enter_context(capturing())
        span = stack.enter_context(tracing.processing(row, context.get("trace")))
        try:
            yield scope
        finally:
            span.ended(running.error)
