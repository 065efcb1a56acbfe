"""Call the body of a task with the arguments of a job."""

from __future__ import annotations

import asyncio
import json
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, Any

from asgiref.sync import sync_to_async

from ...exceptions import TaskTimeout
from ...jobs.current import JobContext
from ...payloads.store import load, missing
from ...tasks.signatures import check_call
from .fork import await_body, call_body
from .outcomes import BadCall

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from contextvars import Context

    from ...jobs.claim import Claimed
    from .running_job import RunningJob
    from .sync_threads import JobThread

__all__ = ["Companions", "PayloadReader", "apayload_of", "await_task", "call_task", "payload_of"]


# ----------------------------------------------------------------------------
# The payload of a job that runs: its row, read at the start of each attempt.
#
# The first job of a claim reads the rows for all jobs of its task that were claimed with it, in one query.
# Jobs that start later than ``FRESH`` after it read theirs again, with the rest. An atomic task gets its
# payload in its transaction, and therefore alone. Async jobs that start in the same turn of the event loop
# share a query.

FRESH = 0.05
"""Seconds for which a row that was read for a job is good. A worker claims so much work ahead."""


class Companions:
    """The rows of one claim, and the payloads that were read for them. Used by several threads."""

    __slots__ = ("_found", "_lock", "_read_at", "_rows")

    def __init__(self, rows: Iterable[Claimed]) -> None:
        self._rows: dict[int, str] | Iterable[Claimed] = rows
        self._found: dict[int, Any] = {}
        self._read_at = 0.0
        self._lock = Lock()

    def payloads_with(self, running: RunningJob) -> dict[int, Any]:
        """Return payloads with that of the job, if its row exists. One thread reads, and the others wait."""
        row = running.row
        with self._lock:
            if not isinstance(self._rows, dict):
                self._rows = {each.id: each.task_path for each in self._rows}
            self._rows.pop(row.id, None)
            if row.id not in self._found or monotonic() - self._read_at > FRESH:
                waiting = [key for key, task_path in self._rows.items() if task_path == row.task_path]
                self._found = load(running.task.payload, running.alias, [row.id, *waiting])
                self._read_at = monotonic()
            return self._found


def payload_of(running: RunningJob) -> Any:
    """Return the payload of a job. Raise ``CancelJob`` if its row does not exist."""
    if running.payload is not None:  # a test has given it
        return running.payload
    if running.companions is None or running.task.atomic:
        return _one(running, load(running.task.payload, running.alias, [running.row.id]))
    return _one(running, running.companions.payloads_with(running))


async def apayload_of(running: RunningJob) -> Any:
    """Like ``payload_of()``, for an async job."""
    if running.payload is None and running.reader is not None:
        found = await running.reader.read(running)
        if found is not None:
            return _one(running, found)
    return await sync_to_async(payload_of)(running)


def _one(running: RunningJob, found: dict[int, Any]) -> Any:
    """Take the payload out of those that were read: no other job gets the same instance."""
    payload = found.pop(running.row.id, None)
    if payload is None:
        raise missing(running.task.payload)
    return payload


class PayloadReader:
    """Reads the payloads of async jobs that start in the same turn of the event loop, on one more thread.

    ``borrow`` returns a thread, and a context in which sync work runs on it.
    """

    def __init__(self, borrow: Callable[[], tuple[JobThread, Context]]) -> None:
        self._borrow = borrow
        self._wanted: list[tuple[RunningJob, asyncio.Future[dict[int, Any] | None]]] = []
        self._reads: set[asyncio.Task[None]] = set()

    async def read(self, running: RunningJob) -> dict[int, Any] | None:
        """Return payloads with that of the job. None if they could not be read: then the job should try it
        itself, and fail with an exception of its own.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[dict[int, Any] | None] = loop.create_future()
        if not self._wanted:
            loop.call_soon(self._start)  # after the jobs that start together with this one
        self._wanted.append((running, future))
        return await future

    def _start(self) -> None:
        groups: dict[tuple[Any, str], list[tuple[RunningJob, asyncio.Future[dict[int, Any] | None]]]] = {}
        for running, future in self._wanted:
            groups.setdefault((running.task.payload, running.alias), []).append((running, future))
        self._wanted = []
        for (model, alias), group in groups.items():
            thread, context = self._borrow()
            reading = self._read(thread, model, alias, group)
            task = asyncio.get_running_loop().create_task(reading, context=context)
            self._reads.add(task)
            task.add_done_callback(self._reads.discard)

    async def _read(self, thread: JobThread, model: Any, alias: str, group: list[Any]) -> None:
        found = None
        try:
            found = await sync_to_async(load)(model, alias, [running.row.id for running, _ in group])
        except Exception:  # each job tries it again and reports what it gets
            found = None
        finally:
            for _, future in group:
                if not future.done():  # a job may have been cancelled
                    future.set_result(found)
            await thread.end()


def call_task(running: RunningJob) -> Any:
    """Call the body of a sync task and return its value."""
    payload = None if running.task.payload is None else payload_of(running)
    args, kwargs = _arguments(running, payload)
    if running.timeout is None:
        return call_body(running.task.func, args, kwargs)
    return running.timeout.call(call_body, [running.task.func, args, kwargs], {})


async def await_task(running: RunningJob) -> Any:
    """Call and await the body of an async task, and return its value."""
    payload = None if running.task.payload is None else await apayload_of(running)
    args, kwargs = _arguments(running, payload)
    try:
        return await await_body(running.task.func, args, kwargs)
    except asyncio.CancelledError as error:
        if running.timeout is not None and running.timeout.timed_out and not running.asked_to_stop:
            raise TaskTimeout from error
        raise
    finally:
        await running.finish_records()


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
