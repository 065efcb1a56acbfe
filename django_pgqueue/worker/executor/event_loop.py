"""The event loop of async tasks.

``asyncio.to_thread``, and ``sync_to_async`` where any thread will do, run on threads of the loop that serve
all jobs in turn, and nobody knows when a job is done with one. So connections of Django are closed after each
call there; those of the job's own thread (``lanes``) are kept.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from django.db import connections

from . import fork
from .connections import tidy_up

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["new_loop"]

P = ParamSpec("P")
T = TypeVar("T")


def new_loop() -> asyncio.AbstractEventLoop:
    """A loop that is ready to run jobs."""
    loop = asyncio.new_event_loop()
    loop.set_default_executor(_TidyThreads(thread_name_prefix="pgqueue-to-thread"))
    fork.end_copies_of(loop)
    return loop


class _TidyThreads(ThreadPoolExecutor):
    def submit(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        return super().submit(_tidied, call, *args, **kwargs)


def _tidied(call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    try:
        return fork.call_body(call, args, kwargs)
    finally:
        tidy_up()
        connections.close_all()
