"""Read the payloads of jobs that run, at the start of each attempt.

The first job of a claim reads the rows for all jobs of its task that were claimed with it, in one query. Jobs
that start later than ``FRESH`` after it read theirs again, with the rest. An atomic task gets its payload in
its transaction, and therefore alone. Async jobs that start in the same turn of the event loop share a query.
"""

from __future__ import annotations

import asyncio
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, Any

from asgiref.sync import sync_to_async

from ...payloads.store import load

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from contextvars import Context

    from ...jobs.claim import Claimed
    from .sync_threads import JobThread

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

    def payloads_with(self, row: Claimed, model: Any, alias: str) -> dict[int, Any]:
        """Return payloads with that of a job, if its row exists. One thread reads, and the others wait."""
        with self._lock:
            if not isinstance(self._rows, dict):
                self._rows = {each.id: each.task_path for each in self._rows}
            self._rows.pop(row.id, None)
            if row.id not in self._found or monotonic() - self._read_at > FRESH:
                waiting = [key for key, task_path in self._rows.items() if task_path == row.task_path]
                self._found = load(model, alias, [row.id, *waiting])
                self._read_at = monotonic()
            return self._found


class PayloadReader:
    """Reads the payloads of async jobs that start in the same turn of the event loop, on one more thread.

    ``borrow`` returns a thread, and a context in which sync work runs on it.
    """

    def __init__(self, borrow: Callable[[], tuple[JobThread, Context]]) -> None:
        self._borrow = borrow
        self._wanted: dict[tuple[Any, str], list[tuple[int, asyncio.Future[dict[int, Any] | None]]]] = {}
        self._reads: set[asyncio.Task[None]] = set()

    async def read(self, job_id: int, model: Any, alias: str) -> dict[int, Any] | None:
        """Return payloads with that of a job. None if they could not be read: then the job should try it
        itself, and fail with an exception of its own.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[dict[int, Any] | None] = loop.create_future()
        if not self._wanted:
            loop.call_soon(self._start)  # after the jobs that start together with this one
        self._wanted.setdefault((model, alias), []).append((job_id, future))
        return await future

    def _start(self) -> None:
        wanted, self._wanted = self._wanted, {}
        for (model, alias), group in wanted.items():
            thread, context = self._borrow()
            reading = self._read(thread, model, alias, group)
            task = asyncio.get_running_loop().create_task(reading, context=context)
            self._reads.add(task)
            task.add_done_callback(self._reads.discard)

    async def _read(self, thread: JobThread, model: Any, alias: str, group: list[Any]) -> None:
        found = None
        try:
            found = await sync_to_async(load)(model, alias, [job_id for job_id, _ in group])
        except Exception:  # each job tries it again and reports what it gets
            found = None
        finally:
            for _, future in group:
                if not future.done():  # a job may have been cancelled
                    future.set_result(found)
            await thread.end()
