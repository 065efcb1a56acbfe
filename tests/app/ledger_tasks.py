"""Tasks that record each of their runs in a ledger outside the database. See tests/chaos/harness."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from django_pgqueue import Concurrency, EventTimeout, RateLimit, RetryLater, Snooze, current_job, task
from tests.app import gil
from tests.app.models import Entry
from tests.chaos.harness.ledger import about_to_die, first_time, recorded
from tests.support.machines import enter

ATOMIC = "atomic effect"
"""The key of the rows that atomic jobs insert; their notes are the numbers of the jobs."""


@task
def sync_effect(number: int, seconds: float) -> None:
    with recorded(number):
        time.sleep(seconds)


@task
async def async_effect(number: int, seconds: float) -> None:
    with recorded(number):
        await asyncio.sleep(seconds)


@task(atomic=True)
def atomic_effect(number: int, seconds: float) -> None:
    """Insert a row for the run in the transaction of the job."""
    with recorded(number):
        Entry.objects.create(key=ATOMIC, note=str(number))
        time.sleep(seconds)


@task(backoff=0)
def fails_once(number: int, seconds: float) -> None:
    with recorded(number):
        time.sleep(seconds)
        if current_job().attempts == 1:
            raise RuntimeError("the first attempt fails")


@task(expires_after=timedelta(minutes=30))
def expires(number: int, seconds: float) -> None:
    with recorded(number):
        time.sleep(seconds)


@task
def snoozes(number: int, seconds: float) -> None:
    """Run again some seconds after the first claim, by the time that the server gave it."""
    with recorded(number):
        claimed = current_job().last_attempted_at
        if claimed is not None and first_time(number):
            raise Snooze(until=claimed + timedelta(seconds=seconds))


@task
def sleeps(number: int, seconds: float) -> None:
    with recorded(number):
        current_job().sleep("nap", seconds)


@task
def waits(number: int, seconds: float) -> None:
    """Wait for an event that never comes."""
    with recorded(number), suppress(EventTimeout):
        current_job().receive_event("never", seconds)


@task(timeout=3, max_attempts=1)
def times_out(number: int) -> None:
    with recorded(number):
        for _ in range(200):
            time.sleep(0.1)


@task(timeout=60)
def in_time(number: int, seconds: float) -> None:
    with recorded(number):
        time.sleep(seconds)


@task
def dies_once(number: int, how: str) -> None:
    """Take the process down, as a bug in C or the system does. The second run is done."""
    with recorded(number):
        if not first_time(number):
            return
        about_to_die(f"a task died: {how}")
        if how == "segfault":
            ctypes.string_at(0)
        os.kill(os.getpid(), signal.SIGKILL)


@task
def uses_up_memory(number: int, group: str) -> None:
    """In the first run, use all the memory of a cgroup, so that the system kills the process."""
    with recorded(number):
        if not first_time(number):
            return
        enter(group)
        about_to_die("a task died: out of memory")
        held = []
        while True:
            held.append(b"x" * 2**22)


@task(on_lost="fail", max_attempts=1)
def runs_once(number: int, seconds: float) -> None:
    with recorded(number):
        time.sleep(seconds)


@task(timeout=1, max_attempts=1)
def never_returns(number: int) -> None:
    """Wait in C, where no exception can interrupt it."""
    with recorded(number):
        about_to_die("a task never returns", within=20.0)
        time.sleep(100_000)


@task
def holds_gil(number: int, seconds: int) -> None:
    with recorded(number):
        gil.hold_seconds(seconds)


@task
def wait_for_file(number: int, path: str) -> None:
    """Run until the file exists, or the file for this run only, which has the lease after its name."""
    with recorded(number):
        _wait_for_file(path)


@task(atomic=True)
def lock_until_file(number: int, path: str) -> None:
    """The same in a transaction that holds a lock."""
    with recorded(number):
        Entry.objects.create(key=f"held by number {number}")
        _wait_for_file(path)


def _wait_for_file(path: str) -> None:
    ways = [Path(path), Path(f"{path}-{current_job().lease}")]
    end = time.monotonic() + 300
    while not any(way.exists() for way in ways):
        assert time.monotonic() < end
        time.sleep(0.005)


@task(concurrency=Concurrency(1, key="key"))
def few(number: int, key: int, seconds: float) -> None:
    _limited(number, seconds)


@task(concurrency=Concurrency(1, key="key"))
def many(number: int, key: int, seconds: float) -> None:
    _limited(number, seconds)


@task(concurrency=Concurrency(3, key="key"))
def three(number: int, key: int, seconds: float) -> None:
    _limited(number, seconds)


@task(concurrency=Concurrency(10, name="ten"))
async def ten(number: int, key: int, seconds: float) -> None:
    with recorded(number):
        await asyncio.sleep(seconds)


@task(rate_limit=RateLimit(25, per=timedelta(seconds=1), burst=5, key="key"))
def rated(number: int, key: int, seconds: float) -> None:
    _limited(number, seconds)


def _limited(number: int, seconds: float) -> None:
    """Run; some jobs fail once, and others run again later."""
    with recorded(number):
        time.sleep(seconds)
        if current_job().attempts == 1 and number % 12 == 5:
            raise RetryLater(0.05)


# --- A task that leaves a row on the shard of its job: tests/chaos/shards.py


MARK = "mark of a shard"


@task(atomic=True, spread="number", max_attempts=1000, backoff=0)
def mark(number: int, seconds: float = 0.0) -> None:
    Entry.objects.using(current_job().database).create(key=MARK, note=str(number))
    time.sleep(seconds)
