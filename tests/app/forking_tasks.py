"""Tasks that fork. Each process writes what it has done to a file, because child processes run no test."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from django.db import transaction

from django_pgqueue import task

from .models import Entry
from .worker_tasks import backend_pid

FORK = multiprocessing.get_context("fork")


def say(path: str, *words: Any) -> None:
    """Append a line with the id of this process and the words to a file."""
    with Path(path).open("a") as file:
        file.write(f"{os.getpid()} {' '.join(map(str, words))}\n")


def exit_code(pid: int) -> int:
    """Wait for a child, and return its exit code."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _leave(how: str) -> None:
    """End the child by leaving the task in one of several ways."""
    if how == "raise":
        raise ValueError("in the child")
    if how == "exit":
        sys.exit(3)
    if how == "say and exit":
        sys.exit("words")


@task(max_attempts=1)
def fork(path: str, how: str) -> int:
    """Return the exit code of a child that leaves the task."""
    say(path, "runs", how)
    pid = os.fork()
    if pid == 0:
        _leave(how)
        return 0
    return exit_code(pid)


@task(max_attempts=1, atomic=True)
def fork_in_atomic(path: str, how: str) -> int:
    say(path, "runs", how)
    pid = os.fork()
    if pid == 0:
        _leave(how)
        return 0
    Entry.objects.create(key=how)
    return exit_code(pid)


@task(max_attempts=1)
async def afork(path: str, how: str) -> int:
    """Do the same on the event loop."""
    say(path, "runs", how)
    pid = os.fork()
    if pid == 0:
        _leave(how)
        if how in ("await", "yield"):
            await asyncio.sleep(0.1 if how == "await" else 0)
            say(path, "awoke in the child")
        return 0
    return await asyncio.to_thread(exit_code, pid)


@task(max_attempts=1)
async def fork_under_to_thread(path: str, how: str) -> int:
    return await asyncio.to_thread(fork.func, path, how)


@task
async def tick(path: str, stop: str) -> None:
    """Record in which process each step of this job runs, until a file exists."""
    end = time.monotonic() + 60
    while not Path(stop).exists():
        assert time.monotonic() < end
        say(path, "ticks")
        await asyncio.sleep(0)


@task
def run_here(path: str) -> None:
    """Record in which process this job runs."""
    say(path, "ran")


def _square(number: int) -> int:
    return number * number


def _hang(number: int) -> None:
    time.sleep(600)


@task(max_attempts=1)
def use_pools() -> list[Any]:
    """Use a pool of multiprocessing that is ended while it works, and one of concurrent.futures."""
    with FORK.Pool(2) as pool:
        squares = pool.map(_square, [1, 2, 3])
        pool.map_async(_hang, [1, 2])
    with ProcessPoolExecutor(2, mp_context=FORK) as executor:
        return [squares, list(executor.map(_square, [4, 5]))]


@task(max_attempts=1)
def end_pools() -> None:
    """Use pools that are ended before their processes have started."""
    for _ in range(3):
        FORK.Pool(2).terminate()


def _in_child(work: Any) -> int:
    pid = os.fork()
    if pid == 0:
        work()
        os._exit(0)
    return exit_code(pid)


@task(max_attempts=1)
def share_connection() -> list[Any]:
    """Work with the database in both processes."""
    before = backend_pid()
    codes = [_in_child(lambda: Entry.objects.create(key="child")) for _ in range(2)]
    Entry.objects.create(key="parent")
    return [codes, backend_pid() == before]


@task(max_attempts=1)
def share_transaction() -> int:
    """Show that a child cannot continue its parent's transaction, and that the parent can."""
    with transaction.atomic():
        Entry.objects.create(key="parent in a transaction")
        code = _fork_worker(lambda: Entry.objects.create(key="child in a transaction"))
        Entry.objects.create(key="parent after the child")
    return code


def _fork_worker(work: Any) -> int:
    process = FORK.Process(target=work)
    process.start()
    process.join()
    assert process.exitcode is not None
    return process.exitcode


@task
def leave_child(path: str, stop: str) -> None:
    """Open a transaction, start a child that lives until a file exists, and wait to be killed."""
    with transaction.atomic():
        Entry.objects.create(key="never committed")
        backend = backend_pid()
        pid = os.fork()
        if pid == 0:
            say(path, backend)
            end = time.monotonic() + 120
            while not Path(stop).exists() and time.monotonic() < end:
                time.sleep(0.02)
            os._exit(0)
        time.sleep(600)
