"""Call the body of a task: its surroundings, the hooks of ``AROUND_ATTEMPT``, its payload and its arguments.

What surrounds it: Sentry's scope, the context of the enqueue, a span, the log capture. A job without a
context, in a project that has no OpenTelemetry, gets only Sentry's scope.

The first hook is the outermost one. An exception of the body passes all hooks, whatever their exits return: a
job whose failure a hook has hidden would count as done. A hook may raise another one instead, which then
counts.

The first job of a claim reads the payloads of all jobs of its task that were claimed with it, in one query.
Jobs that start later than ``FRESH`` after it read theirs again, with the rest. An atomic task gets its
payload in its transaction, and therefore alone.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from threading import Lock
from time import monotonic
from typing import Any, TypeVar

from asgiref.sync import sync_to_async

from ... import encoding
from ...conf import Hook, around_attempt
from ...context import restored
from ...exceptions import TaskTimeout
from ...formatting import get_logger
from ...jobs.claim import Claimed
from ...jobs.current import JobContext
from ...jobs.payloads import load, missing
from ...tasks.signatures import check_call
from ...telemetry import sentry, tracing
from .fork import await_body, call_body
from .outcomes import BadCall
from .running_job import RunningJob, capture_of

T = TypeVar("T")
logger = get_logger(__name__)

FRESH = 0.05
"""Seconds for which a payload that was read for a job is good. A worker claims so much work ahead."""


def surroundings(running: RunningJob) -> AbstractContextManager[Any]:
    """Return the context manager in which the task runs. Its value is the scope, or None without Sentry.

    It is entered in a ``contextvars`` context of the job's own, after the job has become the current one.
    """
    row = running.row
    if (log := capture_of(running.task.capture_logs, row.queue_name)) is not None:
        running.log = log
    if row.context is None and not tracing.in_use():
        return sentry.job_scope(row)
    return _surrounded(running)


@contextmanager
def _surrounded(running: RunningJob) -> Iterator[Any]:
    row = running.row
    context = encoding.load(row.context) if row.context is not None else {}
    if not isinstance(context, dict):
        logger.warning("job %s runs without its context, which is nested too deeply for Python", row.id)
        context = {}
    with ExitStack() as stack:
        scope = stack.enter_context(sentry.job_scope(row))
        stack.enter_context(restored(context))
        span = stack.enter_context(tracing.processing(row, context.get("trace")))
        try:
            yield scope
        finally:
            span.ended(running.error)


# ----------------------------------------------------------------------------
# A sync task.


def call_within(running: RunningJob, body: Callable[[RunningJob], T]) -> T:
    """Call ``body``, on this thread, within the hooks of a sync task."""
    hooks = around_attempt()
    return _call_within(hooks, running, body) if hooks else body(running)


def _call_within(hooks: tuple[Hook, ...], running: RunningJob, body: Callable[[RunningJob], T]) -> T:
    if not hooks:
        return body(running)
    manager = hooks[0].call(running.job)
    enter, leave = _enter_and_leave(hooks[0], manager, running)
    enter(manager)
    try:
        value = _call_within(hooks[1:], running, body)
    except BaseException as error:
        leave(manager, type(error), error, error.__traceback__)
        raise
    leave(manager, None, None, None)
    return value


def call_task(running: RunningJob) -> Any:
    """Call the body of a sync task and return its value. The caller enters the hooks (``call_within``)."""
    payload = None if running.task.payload is None else _payload(running)
    args, kwargs = _arguments(running, payload)
    if running.timeout is None:
        return call_body(running.task.func, args, kwargs)
    return running.timeout.call(call_body, [running.task.func, args, kwargs], {})


# ----------------------------------------------------------------------------
# An async task.


async def await_task(running: RunningJob) -> Any:
    """Call and await the body of an async task within the hooks, and return its value."""
    return await _await_within(around_attempt(), running)


async def _await_within(hooks: tuple[Hook, ...], running: RunningJob) -> Any:
    try:
        if hooks:
            return await _await_hook(hooks[0], running, partial(_await_within, hooks[1:], running))
        payload = None if running.task.payload is None else await _apayload(running)
        args, kwargs = _arguments(running, payload)
        try:
            return await await_body(running.task.func, args, kwargs)
        finally:
            await running.finish_records()
    except asyncio.CancelledError as error:
        if running.timeout is not None and running.timeout.timed_out and not running.asked_to_stop:
            raise TaskTimeout from error
        raise


async def _await_hook(hook: Hook, running: RunningJob, body: Callable[[], Awaitable[T]]) -> T:
    """Await ``body`` within one hook of an async task, in its own asyncio task."""
    manager = hook.call(running.job)
    kind = type(manager)
    is_async = hasattr(kind, "__aenter__")
    enter, leave = (kind.__aenter__, kind.__aexit__) if is_async else _enter_and_leave(hook, manager, running)

    async def call(function: Callable[..., Any], *error: Any) -> None:
        answer = function(manager, *error)
        if is_async:
            await answer

    await call(enter)
    try:
        value = await body()
    except BaseException as error:
        await call(leave, type(error), error, error.__traceback__)
        raise
    await call(leave, None, None, None)
    return value


def _enter_and_leave(
    hook: Hook, manager: Any, running: RunningJob
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return how to enter and leave a context manager. Like ``with``, look at its class."""
    kind = type(manager)
    if hasattr(kind, "__enter__") and hasattr(kind, "__exit__"):
        return kind.__enter__, kind.__exit__
    if hasattr(kind, "__aenter__"):
        raise TypeError(
            f"AROUND_ATTEMPT: {hook.path} has returned an async context manager, but "
            f"{running.task.module_path} is a sync task. Return one that has __enter__ and __exit__ as well."
        )
    raise TypeError(
        f"AROUND_ATTEMPT: {hook.path} has returned {manager!r:.100}, not a context manager. Decorate it with "
        "contextlib.contextmanager, and return contextlib.nullcontext() for jobs that do not need it."
    )


# ----------------------------------------------------------------------------
# Arguments and payloads.


def _arguments(running: RunningJob, payload: Any) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments of the call. Raises ``BadCall`` if the task does not accept them: SQL does not
    check signatures, and the task may have changed since the job was enqueued.
    """
    row = running.row
    try:
        args = json.loads(row.args) if row.args != "[]" else []
        kwargs = json.loads(row.kwargs) if row.kwargs != "{}" else {}
    except (ValueError, RecursionError) as error:  # Python does not read all that SQL stores
        raise BadCall from error.with_traceback(None)
    if payload is not None:
        args.append(payload)
    try:
        check_call(running.task, args, kwargs)
    except TypeError as error:
        raise BadCall from error.with_traceback(None)  # the worker's frames do not help the author
    if running.task.takes_context:
        args.insert(0, JobContext(task_result=running.task_result(), job=running.job))
    return args, kwargs


def _payload(running: RunningJob) -> Any:
    """Return the payload of a job. Raise ``CancelJob`` if its row does not exist."""
    row, model, alias = running.row, running.task.payload, running.alias
    payload = running.payload  # a test has given it
    if payload is None and (running.companions is None or running.task.atomic):
        payload = load(model, alias, [row.id]).get(row.id)
    elif payload is None:
        payload = running.companions.take(row, model, alias)
    if payload is None:
        raise missing(model, alias)
    return payload


async def _apayload(running: RunningJob) -> Any:
    companions = running.companions
    if companions is None:
        return await sync_to_async(_payload)(running)
    async with companions.turn:  # the first of the jobs that start together reads for all of them
        payload = companions.take_fresh(running.row.id)
        if payload is None:
            payload = await sync_to_async(_payload)(running)
    running.companions = None  # they would live as long as this job
    return payload


class Companions:
    """The rows of one claim, and the payloads that were read for them. Used by several threads."""

    __slots__ = ("_found", "_lock", "_read_at", "_rows", "turn")

    def __init__(self, rows: Iterable[Claimed]) -> None:
        self._rows: dict[int, str] | Iterable[Claimed] = rows
        self._found: dict[int, Any] = {}
        self._read_at = 0.0
        self._lock = Lock()
        self.turn = asyncio.Lock()
        """Held by the async job that may read."""

    def take(self, row: Claimed, model: Any, alias: str) -> Any:
        """Return the payload of a job; None if its row does not exist. One thread reads, and others wait."""
        with self._lock:
            if not isinstance(self._rows, dict):
                self._rows = {each.id: each.task_path for each in self._rows}
            payload = self.take_fresh(row.id)
            if payload is None:
                waiting = [key for key, path in list(self._rows.items()) if path == row.task_path]
                self._found = load(model, alias, [row.id, *waiting])
                self._read_at = monotonic()
                payload = self._found.pop(row.id, None)
            return payload

    def take_fresh(self, job_id: int) -> Any:
        """Return the payload of a job if it has just been read. No other job gets the same instance."""
        if isinstance(self._rows, dict):
            self._rows.pop(job_id, None)
        payload = self._found.pop(job_id, None)
        return payload if monotonic() - self._read_at <= FRESH else None
