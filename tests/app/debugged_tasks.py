"""Tasks for one-process mode."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from django_pgqueue import task

BODIES: dict[str, Callable[[], Any]] = {}


@task
def run_body(name: str) -> Any:
    return BODIES[name]()


@task
async def run_async(name: str) -> Any:
    return None


@task(timeout=1)
def short(name: str) -> Any:
    return BODIES[name]()


later = run_body.using(run_after=timedelta(days=1))


@task
def stop_at_breakpoint(value: int) -> int:
    breakpoint()
    return value
