"""Run async code in a test without leaving connections open on the thread that Django's async code uses."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from asgiref.sync import sync_to_async
from django.db import connections

__all__ = ["run"]

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    """Call ``asyncio.run``, and close the connections of its thread."""

    async def closing() -> T:
        try:
            return await main
        finally:
            await sync_to_async(connections.close_all)()

    return asyncio.run(closing())
