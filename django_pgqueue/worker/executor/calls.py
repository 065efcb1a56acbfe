"""Call the body of a task with the arguments of a job."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from ...exceptions import TaskTimeout
from ...job_context import JobContext
from ...signatures import check_call
from .fork import await_body, call_body
from .outcomes import BadCall
from .payloads import apayload_of, payload_of

if TYPE_CHECKING:
    from .running_job import RunningJob

__all__ = ["await_task", "call_task"]


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
