"""Run one job: find its task, call it in its own context, and report what happens as an outcome.

    claimed --it expired, or its task is unknown--> an outcome without a run
    claimed --it has crashed before--> runs isolated, in its own process, while this thread waits
    claimed --its task is a coroutine function--> handed over to the event loop
    claimed --otherwise--> runs on this thread

Each attempt begins and ends here, wherever it runs: ``_begin``, the task within what surrounds it
(``calls``), its outcome (``outcomes``), ``_end``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from functools import partial
from inspect import iscoroutinefunction
from threading import get_ident
from time import monotonic
from typing import TYPE_CHECKING, Any

from django.db import connections, transaction
from django.db.transaction import TransactionManagementError
from django.db.utils import OperationalError
from psycopg.pq import TransactionStatus

from ... import conf
from ...context import restored
from ...exceptions import TaskTimeout, UnknownTask
from ...formatting import get_logger
from ...jobs.claim import Claimed
from ...jobs.current import RUNNING
from ...jobs.finish import Outcome, finish_one_statement
from ...tasks.call import check_atomic
from ...tasks.task import Task, find_task
from ...telemetry import sentry, tracing
from ..started_jobs import StartedJobs
from .calls import Companions, await_task, call_task, call_within, context_of, surroundings
from .connections import drop_dead, tidy_up
from .errors import user_frames
from .outcomes import Backoffs, Outcomes, Result, is_serialization_failure, session_of, worker_failed
from .progress import ProgressWriter
from .running_job import RunningJob
from .stacks import stack_of
from .task_signals import Announcer
from .timeouts import Timeout, Timeouts

if TYPE_CHECKING:
    HandOver = Callable[[list[RunningJob]], None]
    #: Runs a job in its own process. The last argument is called when it begins, with what kills it.
    Isolate = Callable[[RunningJob, Backoffs, Callable[[Callable[[], None]], None]], Outcome]

logger = get_logger(__name__)

_SERIALIZATION_TRIES = 5
_HOOK_RAISED = (
    "and its transaction is committed, but a hook of AROUND_ATTEMPT raised an exception after that."
)
_CALLBACK_RAISED = (
    "but a function that it has passed to on_commit() raised an exception. Such functions behind it were not "
    "called."
)


class Runner:
    """Runs the jobs of one worker process. Used by many threads at the same time."""

    _enforces_timeouts = True

    def __init__(
        self, alias: str, worker: int, started_jobs: StartedJobs, isolate: Isolate | None = None
    ) -> None:
        conf.around_attempt()  # a setting that names nothing must not fail the jobs one by one
        self.alias = alias
        self.worker = worker
        self._announcer = Announcer()
        self._surroundings_checked = -1.0
        self._is_bare = False  # whether nothing surrounds the tasks of this process
        self.outcomes = Outcomes(alias, worker, self._announcer)
        self.timeouts = Timeouts(alias)
        #: Called on any thread with a job that still runs after its timeout and the grace period.
        self.on_overdue: Callable[[RunningJob], None] = lambda _: None
        self.progress = ProgressWriter()
        self.started_jobs = started_jobs
        self._isolate = isolate
        self._tasks: dict[str, tuple[Task[..., Any], bool]] = {}  # the found ones, and whether they are async
        self._has_async = False
        self.running: dict[int, RunningJob] = {}  # by id; other threads change it

    def perform(self, row: Claimed, hand_over: HandOver, companions: Companions) -> Result | None:
        """Run a job on this thread. If it is async, pass it to ``hand_over`` instead and return None."""
        began = monotonic()
        try:
            ready = self._prepare(row)
            if isinstance(ready, Result):
                return ready._replace(ran=monotonic() - began)
            if ready.task.payload is not None:
                ready.companions = companions
            if row.crash_count > 0 and self._isolate is not None:
                outcome = self._run_isolated(ready)
            elif self._tasks[row.task_path][1]:
                hand_over([ready])
                return None
            else:
                outcome = self._run(ready)
            return Result(row, outcome, monotonic() - began, ready.reported, *ready.take_error())
        except BaseException as error:  # a bug of the worker must neither end the thread nor lose the job
            logger.exception("job %s is requeued because of an error in the worker", row.id)
            return Result(row, worker_failed(row, error), monotonic() - began)

    def _prepare(self, row: Claimed) -> RunningJob | Result:
        """Return the job ready to run, or its result if it cannot run."""
        if row.expired:
            reason = f"expired at {row.expires_at}"
            return Result(row, Outcome(row.id, row.lease, "cancelled", reason=reason))
        try:
            task, _ = self._tasks.get(row.task_path) or self.find(row.task_path)
        except UnknownTask as error:
            outcome = self.outcomes.unknown_task(row, error)
            return Result(row, outcome, error=error.with_traceback(user_frames(error)))
        return RunningJob(row, task, self.worker, self.alias, self.progress)

    def _run(self, running: RunningJob) -> Outcome:
        """Run a sync task on this thread."""
        drop_dead()
        self._begin(running)
        try:
            outcome = copy_context().run(self._call, running)
        finally:
            self._end(running)
            unsaved = tidy_up()
        return self.outcomes.tidied(running, outcome, unsaved)

    def _run_isolated(self, running: RunningJob) -> Outcome:
        """Run a job, sync or async, in its own process, and wait for its end on this thread."""
        assert self._isolate is not None
        self.running[running.row.id] = running  # it may be asked to stop before it has started
        try:
            outcome = self._isolate(running, self.outcomes.backoffs, partial(self._begin, running))
            running.progress.end(outcome.kind)
            return outcome
        except TaskTimeout as error:
            return self.outcomes.timed_out(running, error)
        finally:
            self._end(running)
            tidy_up()

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
                    running.outcome = self.outcomes.unsuccessful(running, error)
        finally:
            self._end(running)

    def _begin(self, running: RunningJob, kill: Callable[[], None] | None = None) -> None:
        """Record that the job starts. ``kill`` ends it if it still runs after its timeout and the grace
        period; by default, the producer replaces this process.
        """
        row = running.row
        # This comes first: a job that may have started counts as started.
        self.started_jobs.begin(row.id)
        self.running[row.id] = running
        running.started, running.thread = monotonic(), get_ident()
        if row.timeout is not None and self._enforces_timeouts:
            overdue = kill or partial(self.on_overdue, running)
            running.timeout = Timeout(row, row.timeout, overdue, running.coroutine, self.started_jobs)
            self.timeouts.watch(running.timeout)

    def _end(self, running: RunningJob) -> None:
        if running.timeout is not None:
            self.timeouts.forget(running.timeout)
        # A job that lost its lease may have been claimed again in the meantime and run here a second time.
        if self.running.get(running.row.id) is running:
            del self.running[running.row.id]

    def _call(self, running: RunningJob) -> Outcome:
        """Call the task, in a context of its own."""
        RUNNING.set(running)
        if not running.task.atomic and self._runs_bare(running):
            with restored(context_of(running.row), running.row.tenant):
                try:
                    return self.outcomes.succeeded(running, call_task(running))
                except BaseException as error:
                    return self.outcomes.unsuccessful(running, error)
        with surroundings(running) as running.scope:
            try:
                self._announcer.started(running)
                if running.task.atomic:
                    return call_within(running, self._run_atomic)
                return self._succeeded(running, call_within(running, call_task))
            except BaseException as error:  # the task raised it, even SystemExit and KeyboardInterrupt
                if running.reported:
                    assert running.outcome is not None
                    self._raised_late(running, error, _HOOK_RAISED)
                    return running.outcome
                return self.outcomes.unsuccessful(running, error)

    def _runs_bare(self, running: RunningJob) -> bool:
        """Return whether a job needs only its context: no ``surroundings``, hooks or signals."""
        if running.started - self._surroundings_checked >= 1:  # second, as a project may use them later
            self._surroundings_checked = running.started
            has_hooks, settings = conf.around_attempt(), conf.current()
            self._is_bare = not (
                self._announcer.announces() or has_hooks or settings.capture_logs
                or tracing.in_use() or sentry.in_use()
            )  # fmt: skip
        return self._is_bare and not running.task.capture_logs

    def _succeeded(self, running: RunningJob, value: Any) -> Outcome:
        outcome = self.outcomes.succeeded(running, value)
        self._announcer.succeeded(running, value)
        return outcome

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
                outcome = self.outcomes.succeeded(running, value)
                statement = finish_one_statement(outcome)
                running.is_finishing = True
                with connection.cursor() as cursor:
                    cursor.execute(*statement)
        except BaseException as error:
            if not committed:
                raise
            self._raised_late(running, error)
        return value, outcome

    def _raised_late(self, running: RunningJob, error: BaseException, what: str = _CALLBACK_RAISED) -> None:
        """Log what was raised after the transaction of an atomic job was committed."""
        logger.error("job %s (%s) is done, %s", running.row.id, running.row.task_path, what, exc_info=error)

    def find(self, task_path: str) -> tuple[Task[..., Any], bool]:
        """Find a task, and whether it is async. This may import modules. Raises ``UnknownTask``."""
        task = find_task(task_path)
        found = self._tasks[task_path] = task, iscoroutinefunction(task.func)
        self._has_async = self._has_async or found[1]
        return found

    @property
    def known_tasks(self) -> int:
        """How many tasks it has found so far. Their modules are imported."""
        return len(self._tasks)

    def is_async(self, task_path: str) -> bool | None:
        """Return whether a task is async; None if it has not been found yet."""
        found = self._tasks.get(task_path)
        return None if found is None else found[1]

    def async_jobs(
        self, rows: list[Claimed], companions: Companions
    ) -> tuple[list[RunningJob], list[Claimed]]:
        """Return the jobs that ``perform`` would only hand over, ready to run, and the rows of the others. If
        one of the tasks has not been found yet, these are all: the jobs of other tasks would overtake it.
        """
        if not self._has_async:
            return [], rows
        jobs, others = [], []
        for row in rows:
            found = self._tasks.get(row.task_path)
            if found is None:
                return [], rows
            if not found[1] or row.expired or row.crash_count:
                others.append(row)
            else:
                jobs.append(RunningJob(row, found[0], self.worker, self.alias, self.progress))
                if found[0].payload is not None:
                    jobs[-1].companions = companions
        return jobs, others

    def cancel(self, job_id: int) -> bool:
        """Ask a job to stop. Return whether it is running here."""
        running = self.running.get(job_id)
        if running is not None and running.ask_to_stop():
            logger.info("job %s was asked to stop", job_id)
        return running is not None

    def overdue(self, running: RunningJob) -> Result:
        """Return the result of a job that still runs after its timeout and the grace period."""
        error = TaskTimeout("the task did not end after its timeout, so its process was replaced")
        if stack := stack_of(running):
            error.add_note(f"What it did then, the innermost call last:\n{stack}")
        outcome = self.outcomes.timed_out(running, error)
        return Result(running.row, outcome, running.ran, False, *running.take_error())


@contextmanager
def one_transaction(alias: str) -> Iterator[None]:
    """Refuse each statement after the transaction of an atomic task has ended, also the last one, with which
    the worker writes the end of the job: PostgreSQL would begin another transaction for it, without the work
    of the task.

    The state is known without a query. What a task sends with psycopg alone is seen at the next statement.
    """
    connection = connections[alias]
    has_begun = has_ended = False

    def is_idle() -> bool:
        raw: Any = connection.connection
        return raw is not None and raw.pgconn.transaction_status == TransactionStatus.IDLE

    def look(execute: Callable[..., Any], sql: Any, params: Any, many: bool, context: Any) -> Any:
        nonlocal has_begun, has_ended
        has_ended = has_ended or (has_begun and is_idle())
        if not has_ended:
            answer = execute(sql, params, many, context)
            has_begun = True
            has_ended = is_idle()
        if has_ended:
            raise TransactionManagementError(
                "A task with atomic=True has ended its transaction, with a COMMIT or ROLLBACK of its own. "
                "Raise an exception to undo its work, and use transaction.atomic() to undo a part of it."
            )
        return answer

    connection.execute_wrappers.append(look)
    try:
        yield
    finally:
        # Not the last one, as execute_wrapper() does: the task may have left some.
        if look in connection.execute_wrappers:
            connection.execute_wrappers.remove(look)
