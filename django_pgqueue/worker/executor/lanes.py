"""Lanes of the event loop: each runs one async job at a time and has a thread of its own for sync work.

``sync_to_async`` sends what must stay on one thread, such as Django's ORM, to the thread of its context.
Requests under ASGI have one each; without one, all jobs of the process would share a single thread: a job
that blocks it would hold all others, and a transaction that one leaves open would swallow what they write.

A lane keeps its thread, and so its database connections, from job to job. Most async jobs never need the
thread: it is made at the first use.
"""

from __future__ import annotations

from contextvars import Context
from typing import TYPE_CHECKING

from asgiref.sync import SyncToAsync, ThreadSensitiveContext, sync_to_async
from django.db import connections

from .connections import drop_dead, tidy_up

if TYPE_CHECKING:
    from concurrent.futures import Executor

__all__ = ["Lane"]


class Lane:
    """A context whose thread-sensitive work goes to one thread."""

    def __init__(self) -> None:
        self._key = ThreadSensitiveContext()
        self._context = Context()
        self._context.run(SyncToAsync.thread_sensitive_context.set, self._key)

    def new_context(self) -> Context:
        """The context for one job: nothing in it but the lane."""
        return self._context.copy()

    async def drop_dead(self) -> None:
        """Before a job: see ``django_connections``. To be called in a context of this lane, as all here."""
        if self._thread() is not None:
            await sync_to_async(drop_dead)()

    async def tidy_up(self) -> None:
        """After a job: tidy up the thread's connections, if there is a thread."""
        if self._thread() is not None:
            await sync_to_async(tidy_up)()

    async def close(self) -> None:
        """Close the thread's connections and let it go."""
        thread = self._thread()
        if thread is not None:
            await sync_to_async(connections.close_all)()
            thread.shutdown(wait=False)

    def _thread(self) -> Executor | None:
        return SyncToAsync.context_to_thread_executor.get(self._key)
