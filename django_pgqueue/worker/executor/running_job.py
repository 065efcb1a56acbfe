"""A job while it runs: the claimed row, what its task may request, and the request to stop."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from functools import cached_property
from threading import Event, Lock
from time import monotonic
from typing import Any
from weakref import ReferenceType

from django.db import connections
from django.db.models import DEFERRED

from ...compat import TaskResult
from ...encoding import load
from ...exceptions import Suspended, duration
from ...formatting import get_logger
from ...jobs.batches import Batch
from ...jobs.claim import Claimed
from ...jobs.finish import Outcome
from ...jobs.results import task_result
from ...models import Job
from ...models.batch import Parents
from ...models.current import CurrentJob
from ...postgres.clock import known, stored
from ...tasks.links import IN_BATCH
from ...tasks.task import Task
from .errors import Failure
from .log_capture import LogCapture
from .progress import Changed, ReportedProgress
from .steps import JobSteps
from .timeouts import Timeout

# Race: the task may read its event at the same time as the worker asks it to stop.
_LOCK = Lock()

logger = get_logger(__name__)

_EXTEND_SQL = "SELECT pgqueue_extend_v1(ARRAY[%s::bigint], %s, %s)"


class RunningJob:
    """One claimed job that a thread or the event loop runs."""

    # Defaults of the class: an attribute that is set for each job takes longer than one that few jobs need.
    started = 0.0
    """``time.monotonic()`` when the task began."""
    outcome: Outcome | None = None
    """The outcome of an async job, once it is known."""
    reported = False
    """Whether its row has the outcome already."""
    error: BaseException | None = None
    """The exception because of which the attempt has failed."""
    scope: Any = None
    """The Sentry scope in which it runs, if there is one."""
    log: LogCapture | None = None
    """What it logs, if that is kept."""
    coroutine: asyncio.Task[Any] | None = None
    timeout: Timeout | None = None
    """Set when it starts, if it has a timeout."""
    on_stop: Callable[[], None] | None = None
    """Called when the job is asked to stop, if it runs isolated."""
    session: ReferenceType[Any] | None = None
    """Stands for the session in which the transaction of an atomic task runs."""
    is_finishing = False
    """Whether the body of an atomic task is over, and its end is being written in its transaction."""
    in_outer_transaction = False
    """Whether it was claimed in an open transaction (``inline``)."""
    asked_to_stop = False
    suspended: Suspended | None = None
    """Why the job has to wait, if its task has reached such a place."""
    has_steps = False
    """Whether its task has used a step."""
    told: ReportedProgress | None = None
    """``progress``, once its task has told anything."""
    companions: Any = None
    """The claimed rows among which it waited. Their payloads are read together with its own."""
    payload: Any = None
    """Its payload, if a test has given it."""
    _event: Event | None = None

    def __init__(
        self, row: Claimed, task: Task[..., Any], worker: int, alias: str, changed: Changed | None = None
    ) -> None:
        """``changed``: where the job is noted when it has something to tell."""
        self.row = row
        self.task = task
        self.worker = worker
        self.alias = alias
        self.forgiven_attempts = row.forgiven_attempts
        """The attempts that do not count: a step that this attempt has recorded forgives those before it."""
        self._changed = changed

    @property
    def ran(self) -> float:
        """Seconds since the task began."""
        return monotonic() - self.started if self.started else 0.0

    def logged(self) -> str | None:
        """Return what the attempt has logged so far, as JSON, if that is kept."""
        return None if self.log is None else self.log.as_json(self.row.attempts)

    def take_failure(self) -> Failure | None:
        """Return why the attempt has failed, and forget it: the task's frames may refer to this object, and
        the reference cycle would keep them alive until the garbage collection.
        """
        error, scope = self.error, self.scope
        self.error = self.scope = None
        return None if error is None else Failure(error, scope)

    @property
    def cancel_event(self) -> Event:
        """Set when the job is asked to stop. Created on demand, because most jobs never use it."""
        with _LOCK:
            if self._event is None:
                self._event = Event()
                if self.asked_to_stop:
                    self._event.set()
            return self._event

    @property
    def needs_lease(self) -> bool:
        """Whether it has not given up its lease by itself: it waits, or writes its end."""
        return self.suspended is None and not self.is_finishing

    def ask_to_stop(self) -> bool:
        """Ask the job to stop because it was cancelled. Return False if it was asked before."""
        with _LOCK:
            if self.asked_to_stop:
                return False
            self.asked_to_stop = True
            if self._event is not None:
                self._event.set()
        if self.coroutine is not None:
            self.coroutine.get_loop().call_soon_threadsafe(self.coroutine.cancel)
        if self.on_stop is not None:
            self.on_stop()
        return True

    def extend(self, seconds: float | timedelta) -> bool:
        """Extend the timeout. Return whether the lease is still held. See ``CurrentJob.extend``."""
        more = duration("extend(seconds)", seconds)
        if self.timeout is not None:
            self.timeout.put_off(more)
        connection = connections[self.alias]
        # Outside of the task's transaction: the change must be visible, and the row unlocked, before that
        # ends. A row that was claimed in an open transaction is visible only there.
        is_apart = connection.in_atomic_block and not self.in_outer_transaction
        apart = connection.copy() if is_apart else connection
        try:
            with apart.cursor() as cursor:
                cursor.execute(_EXTEND_SQL, [self.row.id, more, self.row.lease])
                return cursor.fetchone() is not None
        finally:
            if apart is not connection:
                apart.close()

    @cached_property
    def job(self) -> CurrentJob:
        """The job with the values that the claim returned; ``refresh_from_db()`` reads later changes.

        The claim leaves out the keys and the logs, which few jobs have. They are read when they are used.
        """
        row = self.row
        return CurrentJob(
            self, self.alias, id=row.id, shelf=0, status=CurrentJob.Status.RUNNING, task_path=row.task_path,
            args=load(row.args), kwargs=load(row.kwargs), metadata=load(row.metadata),
            queue_name=row.queue_name,
            priority=row.priority, run_after=_time(row.run_after), expires_at=_time(row.expires_at),
            enqueued_at=_time(row.enqueued_at), max_attempts=row.max_attempts, timeout=row.timeout,
            on_lost=row.on_lost, unique_key=DEFERRED, unique_scope=DEFERRED,
            limit_key=DEFERRED, wait_position=DEFERRED, group_key=row.group_key, batch_id=DEFERRED,
            parent_ids=DEFERRED,
            attempts=row.attempts, forgiven_attempts=row.forgiven_attempts,
            crash_count=row.crash_count, marks=row.marks, current_step=DEFERRED, steps=None,
            worker=self.worker, lease=row.lease,
            started_at=_time(row.started_at), last_attempted_at=_time(row.last_attempted_at),
            waiting_reason="", errors=load(row.errors), error_fingerprint="",
            context=None if row.context is None else load(row.context), logs=DEFERRED,
        )  # fmt: skip

    @cached_property
    def steps(self) -> JobSteps:
        """The steps of the job. Made on demand, because most jobs have none."""
        self.has_steps = True
        return JobSteps(self)

    @cached_property
    def progress(self) -> ReportedProgress:
        """What the job tells while it runs. Made on demand, because most jobs tell nothing."""
        self.told = ReportedProgress(self.row, Changed() if self._changed is None else self._changed)
        return self.told

    @cached_property
    def parents(self) -> Parents:
        """What the job was enqueued after. The claim leaves it out, as few jobs have it."""
        return Parents(self.job.parent_ids or (), self.alias)

    @cached_property
    def batch(self) -> Batch | None:
        """The batch that the job belongs to, if the claim said that there is one."""
        if not self.row.marks & IN_BATCH:
            return None
        number = self.job.batch_id
        return None if number is None else Batch.of(number, self.alias)

    async def finish_records(self) -> None:
        """Wait until the steps that have run are recorded."""
        if self.has_steps:
            with suppress(asyncio.CancelledError):
                await self.steps.finish_records()

    def warn_of_unused_steps(self) -> None:
        """Log a warning if the job has recorded steps that its last attempt did not use."""
        if names := self.steps.unused:
            logger.warning(
                "job %s did not use the recorded steps %s. Their names have probably changed, so that they "
                "ran again under the new ones.",
                self.row.id,
                ", ".join(map(repr, names)),
            )

    def failed_result(self, entry: str) -> TaskResult[..., Any]:
        """Return this attempt as a failure, with ``entry`` (JSON) added to its errors."""
        job: Job = copy.copy(self.job)
        job.status = job.Status.FAILED
        job.errors = [*job.errors, json.loads(entry)]
        job.worker = None  # the entry contains it
        job.finished_at = stored(known(self.alias))
        return self.task_result(job)

    def task_result(self, job: Job | None = None) -> TaskResult[..., Any]:
        """Return the job (or ``job``, a changed copy of it) as a result of ``django.tasks``."""
        return task_result(job or self.job, self.task, self.task.get_backend().alias)


def _time(text: str | None) -> Any:
    return None if text is None else stored(datetime.fromisoformat(text))
