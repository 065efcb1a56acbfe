"""Tasks whose stacks are looked at."""

from __future__ import annotations

import asyncio
import ctypes
import time
from collections.abc import AsyncIterator, Iterator

from django_pgqueue import current_job, task

from . import gil
from .worker_tasks import DEADLINE, gate


def innermost(name: str) -> None:
    gate(f"{name} runs").set()
    secret = f"the value of {name}"
    assert gate(name).wait(DEADLINE), secret


def pieces(name: str) -> Iterator[int]:
    innermost(name)
    yield 1


@task
def waits(name: str) -> int:
    return sum(pieces(name))


@task(timeout=60)
def waits_with_timeout(name: str) -> int:
    return sum(pieces(name))


@task
async def waits_async(name: str) -> int:
    return await outer(name)


async def outer(name: str) -> int:
    async for each in numbers(name):
        return each
    return 0


async def numbers(name: str) -> AsyncIterator[int]:
    gate(f"{name} runs").set()
    while not gate(name).is_set():
        await asyncio.sleep(0.05)
    yield 1


@task
async def computes_async(name: str) -> None:
    innermost(name)


@task
def sleeps_long() -> None:
    """In another process, in which no test can set a gate."""
    job = current_job()
    until = time.monotonic() + DEADLINE
    while not job.cancel_requested and time.monotonic() < until:
        time.sleep(0.05)


@task
def crashes() -> None:
    deeper()


def deeper() -> None:
    ctypes.string_at(0)


@task(timeout=1)
def keeps_lock() -> None:
    gil.hold_for_ever()
