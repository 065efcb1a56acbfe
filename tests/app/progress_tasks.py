"""Tasks that report their progress. A test lets them go on, because they run in its process."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from threading import Event, Thread
from typing import Any

from django_pgqueue import current_job, task
from tests.app.models import Entry
from tests.support.waiting import DEADLINE

#: What ``body`` calls.
BODIES: dict[str, Callable[[], Any]] = {}
_GO = Event()


@contextmanager
def held() -> Iterator[None]:
    """While the block runs, jobs wait in ``hold()``."""
    _GO.clear()
    try:
        yield
    finally:
        _GO.set()


def hold() -> None:
    """Wait until the test lets the job go on."""
    if not _GO.wait(DEADLINE):
        raise TimeoutError


@task(max_attempts=2, backoff=0)
def body(name: str) -> Any:
    return BODIES[name]()


@task
def reports() -> None:
    current_job().set_progress(40, 100, "reading")
    hold()


@task
async def areports() -> None:
    current_job().set_progress(40, 100, "reading")
    await asyncio.to_thread(hold)


@task
def reports_in_a_thread() -> None:
    thread = Thread(
        target=contextvars.copy_context().run, args=(lambda: current_job().set_progress(40, 100, "reading"),)
    )
    thread.start()
    thread.join()
    hold()


@task(atomic=True)
def reports_atomically() -> None:
    current_job().set_progress(40, 100, "reading")
    hold()


@task
def sleeps() -> str:
    job = current_job()
    job.set_progress(1, 2)
    job.sleep("nap", timedelta(hours=1))
    return "awake"


@task(max_attempts=1)
def waits_for_entry(key: str) -> None:
    """For processes: report until there is an entry."""
    job, count = current_job(), 0
    job.step("prepare", str, 1)
    while not Entry.objects.filter(key=key).exists():
        count += 1
        job.set_progress(count, note="isolated" if job.crash_count else "here")
        job.wait_for_cancel(0.05)
    job.step("fail", _raise)


def _raise() -> None:
    raise ValueError("in a step")
