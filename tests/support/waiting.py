"""Wait for an event or for async code. Tests do not sleep, and a test fails if its event does not happen."""

from __future__ import annotations

import asyncio
import faulthandler
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from asgiref.sync import sync_to_async
from django.db import connections

DEADLINE = 20.0  # seconds

T = TypeVar("T")


def until(found: Callable[[], T | None], *, seconds: float = DEADLINE, what: str = "") -> T:
    """Call `found` until its answer is true, and return the answer. Raise AssertionError at the deadline."""
    end = time.monotonic() + seconds
    pause = 0.002
    while not (answer := found()):
        if time.monotonic() > end:
            faulthandler.dump_traceback(2)  # shows where each thread is
            raise AssertionError(f"not within {seconds:g} s: {what or found}; the last answer was {answer!r}")
        time.sleep(pause)
        pause = min(1.2 * pause, 0.05)
    return answer


def run(main: Coroutine[Any, Any, T]) -> T:
    """Call ``asyncio.run``, and close the connections of its thread."""

    async def closing() -> T:
        try:
            return await main
        finally:
            await sync_to_async(connections.close_all)()

    return asyncio.run(closing())
