"""What the task of a running job does now: its stack, as in a traceback, without values of variables.

    someone asks: a row of ``pgqueue_stack``, and a notification
    the producer hears it, or looks at its jobs that run longer--> the stack is written into the row
    the job runs isolated --"stack"--> its process sends it to the thread that waits for it, which writes it

The frames belong to another thread, which goes on meanwhile. While a task keeps the GIL, in a call into C,
no thread answers.
"""

from __future__ import annotations

import gc
import sys
import traceback
from collections.abc import Iterator
from inspect import isasyncgen
from types import FrameType
from typing import Any

from ... import conf
from ...formatting import shorten, storable
from ...postgres import sql_of
from ...postgres.session import Session
from .fork import BODY, awaited_by
from .running_job import RunningJob

WRITE_SQL = sql_of(__file__, "stacks")


def stack_of(running: RunningJob) -> str:
    """Return the stack of the task, the innermost call last; empty if the task has not begun or has ended."""
    summary = traceback.StackSummary.extract(iter(_frames(running)))
    return shorten(storable("".join(summary.format())), conf.current().max_error_bytes)


def write_stacks(session: Session, jobs: list[RunningJob]) -> None:
    """Write the stacks of these jobs, for which someone has asked."""
    ids, leases = [job.row.id for job in jobs], [job.row.lease for job in jobs]
    with session.aside("the stacks of jobs"):
        session.rows(WRITE_SQL, (ids, leases, [stack_of(job) for job in jobs], ids))


def _frames(running: RunningJob) -> list[tuple[FrameType, int]]:
    """Return the frames of the task and their lines. Frames of the worker, which come first, are left out."""
    coroutine: Any = None if running.coroutine is None else running.coroutine.get_coro()
    if coroutine is None or coroutine.cr_running:
        frame = sys._current_frames().get(running.thread)
        found = [] if frame is None else list(traceback.walk_stack(frame))[::-1]
    else:
        found = [(frame, frame.f_lineno) for frame in map(_frame, _awaited(coroutine)) if frame is not None]
    last = max((place for place, (frame, _) in enumerate(found) if frame.f_code in BODY), default=-1)
    return found[last + 1 :]


def _awaited(coroutine: Any) -> Iterator[Any]:
    """Yield a coroutine, the one for which it waits, and so on."""
    while coroutine is not None:
        yield coroutine
        for name in ("cr_await", "gi_yieldfrom", "ag_await"):
            if hasattr(coroutine, name):
                coroutine = getattr(coroutine, name)
                break
        else:  # of ``async for``, only the garbage collector knows the generator
            coroutine = awaited_by(coroutine) or next(filter(isasyncgen, gc.get_referents(coroutine)), None)


def _frame(coroutine: Any) -> FrameType | None:
    for name in ("cr_frame", "gi_frame", "ag_frame"):
        frame: FrameType | None = getattr(coroutine, name, None)
        if frame is not None:
            return frame
    return None
