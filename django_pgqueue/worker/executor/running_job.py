"""A job while it runs: the claimed row, what its task may request, and the request to stop."""

from __future__ import annotations

import asyncio
import copy
import json
import logging
from collections import deque
from collections.abc import Callable
from contextlib import closing, nullcontext
from datetime import UTC, datetime, timedelta
from functools import cached_property
from threading import Event, RLock
from time import monotonic
from typing import Any
from weakref import ReferenceType

from django.db import connections
from django.db.models import DEFERRED

from ... import conf
from ...compat import TaskResult
from ...encoding import load
from ...exceptions import duration
from ...formatting import cut, storable
from ...jobs.batches import Batch
from ...jobs.claim import Claimed
from ...jobs.current import RUNNING
from ...jobs.finish import Outcome
from ...jobs.results import task_result
from ...models import Job
from ...models.batch import Parents
from ...models.current import CurrentJob
from ...postgres.clock import known, stored
from ...tasks.links import IN_BATCH
from ...tasks.task import Task
from .progress import ProgressWriter, ReportedProgress
from .steps import JobSteps
from .timeouts import Timeout

_EXTEND_SQL = "SELECT pgqueue_extend(ARRAY[%s::bigint], %s * interval '1 second', %s)"


class RunningJob:
    """One claimed job that a thread or the event loop runs."""

    # Defaults of the class: an attribute that is set for each job takes longer than one that few jobs need.
    started = 0.0  # ``time.monotonic()`` when the task began
    outcome: Outcome | None = None  # of an async or atomic job, once it is known
    reported = False  # whether its row has the outcome already
    error: BaseException | None = None  # because of which the attempt has failed
    scope: Any = None  # of Sentry
    log: LogCapture | None = None  # what it logs, if that is kept
    coroutine: asyncio.Task[Any] | None = None
    timeout: Timeout | None = None  # once it has started
    thread = 0  # in which it runs; of an async job, that of the loop
    send: Callable[[str], None] | None = None  # a command to the process in which it runs isolated
    session: ReferenceType[Any] | None = None  # stands for that of the transaction of an atomic task
    is_finishing = False  # whether the end of an atomic task is being written in its transaction
    in_outer_transaction = False  # whether it was claimed in an open transaction (``inline``)
    asked_to_stop = False
    has_steps = False  # whether its task has used a step
    reporting: ReportedProgress | None = None  # ``progress``, once its task has reported anything
    companions: Any = None  # the rows of its claim, whose payloads are read together with its own
    payload: Any = None  # if a test has given it
    _event: Event | None = None

    def __init__(
        self, row: Claimed, task: Task[..., Any], worker: int, alias: str, writer: ProgressWriter
    ) -> None:
        self.row = row
        self.task = task
        self.worker = worker
        self.alias = alias
        self._writer = writer

    @property
    def ran(self) -> float:
        """Seconds since the task began."""
        return monotonic() - self.started if self.started else 0.0

    def logged(self) -> str | None:
        """Return what the attempt has logged so far, as JSON, if that is kept."""
        return None if self.log is None else self.log.as_json(self.row.attempts)

    def take_error(self) -> tuple[BaseException | None, Any]:
        """Return the error and Sentry's scope, and forget both: frames of the task may refer to this job."""
        error, scope = self.error, self.scope
        self.error = self.scope = None
        return error, None if error is None else scope

    @property
    def cancel_event(self) -> Event:
        """Set when the job is asked to stop. Created on demand, because most jobs never use it."""
        # Race: the job is asked to stop at this moment. Both sides write, and then look at what the other has
        # written. The task acquires no lock: see `timeouts`.
        event = self._event or self.__dict__.setdefault("_event", Event())
        if self.asked_to_stop:
            event.set()
        return event

    @property
    def needs_lease(self) -> bool:
        """Whether it has not given up its lease by itself: it waits, or writes its end."""
        return not self.is_finishing and not (self.has_steps and self.steps.suspended)

    @property
    def forgiven_attempts(self) -> int:
        """The attempts that do not count."""
        return self.steps.forgiven_attempts if self.has_steps else self.row.forgiven_attempts

    def ask_to_stop(self) -> bool:
        """Ask the job to stop because it was cancelled. Return False if it was asked before. Only one thread
        of a process asks.
        """
        if self.asked_to_stop:
            return False
        self.asked_to_stop = True
        if self._event is not None:
            self._event.set()
        if self.coroutine is not None:
            self.coroutine.get_loop().call_soon_threadsafe(self.coroutine.cancel)
        if self.send is not None:
            self.send("cancel")
        return True

    def extend(self, seconds: float | timedelta) -> bool:
        """Extend the timeout. Return whether the lease is still held. See ``CurrentJob.extend``."""
        more = duration("extend(seconds)", seconds)
        if self.timeout is not None:
            self.timeout.put_off(more)
        connection = connections[self.alias]
        # Outside of the task's transaction: the change must be visible, and the row unlocked, before it ends.
        # A row that was claimed in an open transaction is visible only there.
        is_apart = connection.in_atomic_block and not self.in_outer_transaction
        apart = closing(connection.copy()) if is_apart else nullcontext(connection)
        with apart as used, used.cursor() as cursor:
            cursor.execute(_EXTEND_SQL, [self.row.id, more, self.row.lease])
            return bool(cursor.fetchone()[0])

    @cached_property
    def job(self) -> CurrentJob:
        """The job with the values that the claim returned; ``refresh_from_db()`` reads later changes. What
        few jobs have, such as keys and logs, is read when it is used.
        """
        row = self.row
        return CurrentJob(
            self, self.alias, id=row.id, shelf=0, status=CurrentJob.Status.RUNNING, task_path=row.task_path,
            args=load(row.args), kwargs=load(row.kwargs), metadata=load(row.metadata),
            queue_name=row.queue_name, priority=row.priority,
            run_after=_time(row.run_after), expires_at=_time(row.expires_at),
            enqueued_at=_time(row.enqueued_at), max_attempts=row.max_attempts, timeout=row.timeout,
            on_lost=row.on_lost, unique_key=DEFERRED, unique_scope=DEFERRED,
            limit_key=DEFERRED, wait_position=DEFERRED, group_key=row.group_key, batch_id=DEFERRED,
            parent_ids=DEFERRED, attempts=row.attempts, forgiven_attempts=row.forgiven_attempts,
            crash_count=row.crash_count, marks=row.marks, current_step=DEFERRED, steps=None,
            worker=self.worker, lease=row.lease,
            started_at=_time(row.started_at), last_attempted_at=_time(row.last_attempted_at),
            waiting_reason="", errors=load(row.errors), error_fingerprint="",
            context=None if row.context is None else load(row.context), tenant=row.tenant, logs=DEFERRED,
        )  # fmt: skip

    @cached_property
    def steps(self) -> JobSteps:
        """The steps of the job. Made on demand, because most jobs have none."""
        self.has_steps = True
        return JobSteps(self.row, self.task, self.alias, self.progress)

    @cached_property
    def progress(self) -> ReportedProgress:
        """What the job reports while it runs. Made on demand, because most jobs report nothing."""
        self.reporting = ReportedProgress(self.row, self._writer)
        return self.reporting

    @cached_property
    def parents(self) -> Parents:
        """What the job was enqueued after. The claim leaves it out, as few jobs have it."""
        return Parents.read(self.job.parent_ids or [], self.alias)

    @cached_property
    def batch(self) -> Batch | None:
        """The batch that the job belongs to, if the claim said that there is one."""
        if not self.row.marks & IN_BATCH:
            return None
        number = self.job.batch_id
        return None if number is None else Batch.of(number, self.alias)

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


# What a job logs: a bounded number of records, the first and the last ones, stored with its outcome. One
# handler at the root logger serves all jobs, and their threads and coroutines. The first such job of a
# process adds it, and it stays.

_FORMATTER = logging.Formatter()
_OVERHEAD = 80  # bytes of a line in JSON besides its texts, about


class LogCapture:
    """The lines of one attempt. Half of the room is for the first lines, and half for the last ones."""

    def __init__(self, level: int, lines: int, size: int) -> None:
        self.level = level
        self._most = size // 4  # of one message, so that one of them does not displace all others
        self._lines = lines // 2
        self._size = size // 2
        self._first: list[dict[str, str]] = []
        self._first_size = 0
        self._last: deque[tuple[int, dict[str, str]]] = deque()
        self._last_size = 0
        self._left_out = 0
        # Race: a thread of the task logs while the lines are reported, or while another thread logs. A thread
        # whose timeout comes as it acquires the lock keeps it (see `timeouts`), and acquires it again.
        self._lock = RLock()

    def add(self, record: logging.LogRecord) -> None:
        """Add a record. If there is no room, the oldest of the last lines is left out."""
        # With its traceback, but without a prefix.
        message = cut(storable(_FORMATTER.format(record)), self._most)
        line = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": storable(record.name)[:200],
            "message": message,
        }
        size = _OVERHEAD + len(line["logger"]) + len(message.encode())
        with self._lock:
            is_first = not self._last and not self._left_out and len(self._first) < self._lines
            if is_first and self._first_size + size <= self._size:
                self._first.append(line)
                self._first_size += size
                return
            self._last.append((size, line))
            self._last_size += size
            while len(self._last) > self._lines or (self._last_size > self._size and len(self._last) > 1):
                self._last_size -= self._last.popleft()[0]
                self._left_out += 1

    def as_json(self, attempt: int) -> str | None:
        """Return the lines as they are stored; None if there are none."""
        with self._lock:
            if not self._first and not self._last:
                return None
            entry: dict[str, Any] = {"attempt": attempt, "lines": list(self._first)}
            if self._left_out:
                entry["left_out"] = self._left_out
                entry["after"] = len(self._first)
            entry["lines"] += [line for _, line in self._last]
            return json.dumps(entry, ensure_ascii=False)


def capture_of(wanted: bool | str | None, queue_name: str) -> LogCapture | None:
    """Return what keeps the logs of a job, if they are kept. ``wanted``: what its task says."""
    settings = conf.current()
    if wanted is None:
        levels = settings.capture_logs
        level = levels.get(queue_name, levels.get("*", 0)) if levels else 0
    else:
        level = conf.log_level(wanted)
    if not level:
        return None
    logging.root.addHandler(_HANDLER)  # unless it is there: a task may have configured logging anew
    return LogCapture(level, settings.log_lines, settings.log_bytes)


class _Handler(logging.Handler):
    """Gives each record to the job that has emitted it, which the context of the record names."""

    def emit(self, record: logging.LogRecord) -> None:
        log: LogCapture | None = getattr(RUNNING.get(None), "log", None)
        if log is not None and record.levelno >= log.level:
            try:
                log.add(record)
            except Exception:  # the arguments of the record may not fit its message
                self.handleError(record)
        fallback = logging.lastResort
        if fallback is not None and record.levelno >= fallback.level and self._is_alone(record):
            fallback.handle(record)

    def _is_alone(self, record: logging.LogRecord) -> bool:
        """Return whether no other handler gets the record. Without this one, it would be printed."""
        logger: logging.Logger | None = logging.getLogger(record.name)
        while logger is not None:
            if any(handler is not self for handler in logger.handlers):
                return False
            logger = logger.parent if logger.propagate else None
        return True


_HANDLER = _Handler()
