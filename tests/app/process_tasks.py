"""Tasks that are hard on the process that runs them, for tests with real processes."""

from __future__ import annotations

import asyncio
import ctypes
import os
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from django.core import mail

from django_pgqueue import current_job, task

from . import gil
from .models import Entry
from .worker_tasks import DEADLINE, ask, gate, wait_for_entry


def _first_time(key: str) -> bool:
    return Entry.objects.get_or_create(key=key)[1]


@task
def hold_gil_once(key: str) -> None:
    """The first time, hold the GIL in C for longer than any test lasts."""
    if _first_time(f"{key} runs"):
        gil.hold_for_ever()


@task
def exit_once(key: str, code: int) -> None:
    """The first time, crash the process."""
    if _first_time(key):
        os._exit(code)


@task
def leave_subprocess(key: str, then: str) -> None:
    """Start a program that outlives the job, and do something harmful once."""
    if not _first_time(key):
        return
    started = subprocess.Popen(["sleep", "1000"])
    started.returncode = 0  # avoids the warning about a process that nobody has waited for
    Entry.objects.create(key=f"{key} runs", note=str(started.pid))
    if then == "wait":
        wait_for_entry.func(f"{key} may end")
    elif then == "hold the GIL":
        gil.hold_for_ever()


@task
def leave_thread() -> None:
    """Start a thread that never ends, and that the interpreter waits for."""
    threading.Thread(target=threading.Event().wait, name="of-a-task", daemon=False).start()


@task
def read_input() -> list[str]:
    """Return what can be read from standard input, here and in a program that the task starts."""
    return [sys.stdin.read(), subprocess.run(["cat"], stdout=subprocess.PIPE, check=True).stdout.decode()]


@task
def environment() -> list[str]:
    return [*os.environ]


@task
def daemonize() -> None:
    """Leave a grandchild in a separate session. It ends soon."""
    subprocess.run(["sh", "-c", "setsid sleep 0.1 &"], check=True)


@task(max_attempts=1)
def where_it_runs(secret: str) -> dict[str, object]:
    """Return the database, the role, and the files of this process or its parent that contain the secret.

    And send a mail. This fails if the mail would really be sent, because no server accepts it.
    """
    mail.send_mail("subject", "text", "from@example.com", ["to@example.com"])
    database, user = ask("SELECT current_database(), current_user")
    files = [
        Path(f"/proc/{pid}/{name}") for pid in (os.getpid(), os.getppid()) for name in ("cmdline", "environ")
    ]
    return {
        "database": database,
        "user": user,
        "mails": len(mail.outbox),
        "told by": [str(file) for file in files if secret in file.read_text(errors="replace")],
    }


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
