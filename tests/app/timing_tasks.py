"""Tasks with timeouts, and tasks that end their process."""

from __future__ import annotations

import asyncio
import os
import signal
import time

from asgiref.sync import sync_to_async

from django_pgqueue import TaskTimeout, current_job, task
from tests.app import gil
from tests.app.models import Entry
from tests.app.worker_tasks import gate, open_gate


@task(timeout=1, max_attempts=2, backoff=0)
def too_long_once() -> str:
    if current_job().attempts > 1:
        return "in time"
    while True:
        time.sleep(0.001)


@task(timeout=1, max_attempts=1)
def cleans_up(name: str) -> str:
    try:
        while True:
            time.sleep(0.001)
    except TaskTimeout:
        return f"{name} cleaned up"


@task(timeout=1, max_attempts=1)
async def acleans_up(name: str) -> str:
    try:
        await asyncio.sleep(600)
    except asyncio.CancelledError:
        return f"{name} cleaned up"
    return ""


@task(timeout=1, max_attempts=1)
def extends(times: int) -> list[bool]:
    """Runs longer than its timeout, but extends its deadline."""
    answers = []
    for _ in range(times):
        answers.append(current_job().extend(1.5))
        time.sleep(0.5)
    return answers


@task(timeout=1, max_attempts=1)
def waits_for(name: str) -> str:
    """Waits at a gate, and can be interrupted."""
    gate(f"{name} runs").set()
    while not gate(name).is_set():
        time.sleep(0.001)
    return name


@task(timeout=3600)
def waits_for_an_hour(name: str) -> str:
    gate(f"{name} runs").set()
    gate(name).wait(600)
    return name


@task(timeout=1, max_attempts=1)
async def awaits(name: str) -> str:
    await open_gate(name)
    return name


@task(timeout=1, max_attempts=1)
def deaf(name: str) -> str:
    """Continues after its TaskTimeout until the gate opens."""
    gate(f"{name} runs").set()
    while not gate(name).is_set():
        try:
            time.sleep(0.001)
        except TaskTimeout:
            gate(f"{name} heard").set()
    return name


@task(timeout=1, atomic=True, max_attempts=1)
def atomic_too_long(key: str) -> None:
    Entry.objects.create(key=key)
    while True:
        time.sleep(0.001)


@task(timeout=3600)
def quick() -> None:
    """Has a timeout, and ends long before it."""


# -- for worker processes, which have no gates


@task(timeout=1, max_attempts=1)
def holds_the_gil_for_ever(key: str) -> None:
    Entry.objects.create(key=f"{key} runs")
    gil.hold_for_ever()


@task
def dies_once(key: str) -> int:
    """Crash the first process that comes here. Return the process that comes the second time."""
    first = not Entry.objects.filter(key=f"{key} runs").exists()
    Entry.objects.create(key=f"{key} runs", note=str(os.getpid()))
    if first:
        os.kill(os.getpid(), signal.SIGKILL)
    return os.getpid()


@task
async def adies_once(key: str) -> int:
    return await sync_to_async(dies_once.func)(key)


@task
def dies_once_then_waits(key: str) -> str:
    """The second time, waits until it is asked to stop."""
    dies_once.func(key)
    return "asked" if current_job().wait_for_cancel(60) else "not asked"


@task(timeout=2, max_attempts=1)
def dies_once_then_never_ends(key: str) -> None:
    dies_once.func(key)
    gil.hold_for_ever()


@task(on_lost="fail")
def dies_and_must_not_run_twice(key: str) -> None:
    dies_once.func(key)
