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
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, AsyncExitStack, ExitStack, contextmanager, suppress
from functools import lru_cache, partial
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
"""Seconds for which a payload that was read for a job is good."""


def surroundings(running: RunningJob) -> AbstractContextManager[Any]:
    """Return the context manager in which the task runs. Its value is Sentry's scope, or None without it."""
    row = running.row
    if (log := capture_of(running.task.capture_logs, row.queue_name)) is not None:
        running.log = log
    if row.context is None and row.tenant is None and not tracing.in_use():
        return sentry.job_scope(row)
    return _surrounded(running)


@contextmanager
def _surrounded(running: RunningJob) -> Iterator[Any]:
    context = context_of(running.row)
    with ExitStack() as stack:
        scope = stack.enter_context(sentry.job_scope(running.row))
        stack.enter_context(restored(context, running.row.tenant))
        span = stack.enter_context(tracing.processing(running.row, context.get("trace")))
        try:
            yield scope
        finally:
            if span is not None:
                span.ended(running.error)


_shared = lru_cache(maxsize=256)(encoding.load)


def context_of(row: Claimed) -> dict[str, Any]:
    """Return the context of the enqueue of a job, which the caller does not change."""
    if (text := row.context) is None:
        return {}
    # Many jobs have the same language and user. Values of variables are not shared: a task may change them.
    context = encoding.load(text) if '"vars"' in text else _shared(text)
    if isinstance(context, dict):
        return context
    logger.warning("job %s runs without its context, which is nested too deeply for Python", row.id)
    return {}


def call_within(running: RunningJob, body: Callable[[RunningJob], T]) -> T:
    """Call ``body``, on this thread, within the hooks of a sync task."""
    hooks = around_attempt()
    if not hooks:
        return body(running)
    with ExitStack() as stack:
        for hook in hooks:
            _enter(stack, hook, hook.call(running.job), running)
        return body(running)


def call_task(running: RunningJob) -> Any:
    """Call the body of a sync task and return its value. The caller enters the hooks (``call_within``)."""
    payload = None if running.task.payload is None else _payload(running)
    args, kwargs = _arguments(running, payload)
    if running.timeout is None:
        return call_body(running.task.func, args, kwargs)
    return running.timeout.call(call_body, [running.task.func, args, kwargs], {})


async def await_task(running: RunningJob) -> Any:
    """Call and await the body of an async task within the hooks, and return its value."""
    hooks = around_attempt()
    if not hooks:
        return await _await_body(running)
    try:
        async with AsyncExitStack() as stack:
            for hook in hooks:
                manager = hook.call(running.job)
                kind = type(manager)
                if hasattr(kind, "__aenter__"):
                    await kind.__aenter__(manager)
                    stack.push_async_exit(partial(_leave_async, kind.__aexit__, manager))
                else:
                    _enter(stack, hook, manager, running)
            return await _await_body(running)
    except asyncio.CancelledError as error:
        _raise_if_timed_out(running, error)
        raise


async def _await_body(running: RunningJob) -> Any:
    try:
        payload = None if running.task.payload is None else await _apayload(running)
        args, kwargs = _arguments(running, payload)
        try:
            return await await_body(running.task.func, args, kwargs)
        finally:
            if running.has_steps:  # its records precede the outcome, which ends the lease
                with suppress(asyncio.CancelledError):
                    await asyncio.gather(*running.steps.records, return_exceptions=True)
    except asyncio.CancelledError as error:
        _raise_if_timed_out(running, error)
        raise


def _raise_if_timed_out(running: RunningJob, error: BaseException) -> None:
    if running.timeout is not None and running.timeout.timed_out and not running.asked_to_stop:
        raise TaskTimeout from error


def _enter(stack: ExitStack | AsyncExitStack, hook: Hook, manager: Any, running: RunningJob) -> None:
    """Enter a context manager. Like ``with``, look at its class, but do not let it suppress an exception."""
    kind = type(manager)
    if hasattr(kind, "__enter__") and hasattr(kind, "__exit__"):

        def leave(*error: Any) -> None:
            kind.__exit__(manager, *error)

        kind.__enter__(manager)
        stack.push(leave)
        return
    if hasattr(kind, "__aenter__"):
        raise TypeError(
            f"AROUND_ATTEMPT: {hook.path} has returned an async context manager, but "
            f"{running.task.module_path} is a sync task. Return one that has __enter__ and __exit__ as well."
        )
    raise TypeError(
        f"AROUND_ATTEMPT: {hook.path} has returned {manager!r:.100}, not a context manager. Decorate it with "
        "contextlib.contextmanager, and return contextlib.nullcontext() for jobs that do not need it."
    )


async def _leave_async(leave: Callable[..., Any], manager: Any, *error: Any) -> None:
    await leave(manager, *error)


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

    def __init__(self, rows: list[Claimed]) -> None:
        self._rows = rows
        self._taken: set[int] = set()
        self._found: dict[int, Any] = {}
        self._read_at = 0.0
        self._lock = Lock()
        self.turn = asyncio.Lock()
        """Held by the async job that may read."""

    def take(self, row: Claimed, model: Any, alias: str) -> Any:
        """Return the payload of a job; None if its row does not exist. One thread reads, and others wait."""
        with self._lock:
            payload = self.take_fresh(row.id)
            if payload is None:
                alike = [each.id for each in self._rows if each.task_path == row.task_path]
                self._found = load(model, alias, [row.id, *(key for key in alike if key not in self._taken)])
                self._read_at = monotonic()
                payload = self._found.pop(row.id, None)
            return payload

    def take_fresh(self, job_id: int) -> Any:
        """Return the payload of a job if it has just been read. No other job gets the same instance."""
        self._taken.add(job_id)
        payload = self._found.pop(job_id, None)
        return payload if monotonic() - self._read_at <= FRESH else None
