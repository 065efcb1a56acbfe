"""Call the body of a task with the arguments of a job."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from typing import TYPE_CHECKING, Any

from asgiref.sync import sync_to_async

from ...exceptions import TaskTimeout
from ...jobs.current import JobContext
from ...payloads.store import load, missing
from ...tasks.hooks import around_attempt
from ...tasks.signatures import check_call
from .fork import await_body, call_body
from .hooks import await_within
from .outcomes import BadCall

if TYPE_CHECKING:
    from ...tasks.hooks import Hook
    from .running_job import RunningJob


def call_task(running: RunningJob) -> Any:
    """Call the body of a sync task and return its value. The caller enters the hooks (``call_within``)."""
    payload = None if running.task.payload is None else payload_of(running)
    args, kwargs = _arguments(running, payload)
    if running.timeout is None:
        return call_body(running.task.func, args, kwargs)
    return running.timeout.call(call_body, [running.task.func, args, kwargs], {})


async def await_task(running: RunningJob) -> Any:
    """Call and await the body of an async task within the hooks, and return its value."""
    return await _await_within(around_attempt(), running)


async def _await_within(hooks: tuple[Hook, ...], running: RunningJob) -> Any:
    try:
        if hooks:
            return await await_within(hooks[0], running, partial(_await_within, hooks[1:], running))
        return await _await_body(running)
    except asyncio.CancelledError as error:
        if running.timeout is not None and running.timeout.timed_out and not running.asked_to_stop:
            raise TaskTimeout from error
        raise


async def _await_body(running: RunningJob) -> Any:
    payload = None if running.task.payload is None else await apayload_of(running)
    args, kwargs = _arguments(running, payload)
    try:
        return await await_body(running.task.func, args, kwargs)
    finally:
        await running.finish_records()


def payload_of(running: RunningJob) -> Any:
    """Return the payload of a job. Raise ``CancelJob`` if its row does not exist."""
    if running.payload is not None:  # a test has given it
        return running.payload
    if running.companions is None or running.task.atomic:
        return _one(running, load(running.task.payload, running.alias, [running.row.id]))
    return _one(running, running.companions.payloads_with(running.row, running.task.payload, running.alias))


async def apayload_of(running: RunningJob) -> Any:
    """Like ``payload_of()``, for an async job."""
    if running.payload is None and running.reader is not None:
        found = await running.reader.read(running.row.id, running.task.payload, running.alias)
        if found is not None and running.row.id in found:
            return _one(running, found)
    return await sync_to_async(payload_of)(running)


def _one(running: RunningJob, found: dict[int, Any]) -> Any:
    """Take the payload out of those that were read: no other job gets the same instance."""
    payload = found.pop(running.row.id, None)
    if payload is None:
        raise missing(running.task.payload, running.alias)
    return payload


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
