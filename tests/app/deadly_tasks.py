"""Tasks that change the process in which they run, or end it."""

from __future__ import annotations

import asyncio
import atexit
import ctypes
import locale
import os
import random
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

from asgiref.sync import sync_to_async
from django.db import connection

from django_pgqueue import task

from . import gil
from .models import Entry

# -- tasks that change the process


@task
def do_at_exit(said: str) -> None:
    atexit.register(Path(said).touch)


@task
def change_everything(folder: str) -> None:
    """Change what belongs to the process, and so to all its jobs."""
    os.environ.clear()
    os.environ.update(TZ="Asia/Tokyo", LC_ALL="C", HOME="/nowhere", PATH="", DJANGO_SETTINGS_MODULE="no.such")
    time.tzset()
    locale.setlocale(locale.LC_ALL, "C")
    socket.setdefaulttimeout(0.001)
    random.seed(0)
    os.umask(0o777)
    Path(folder).mkdir()
    os.chdir(folder)
    Path(folder).rmdir()


@task
def where() -> list[Any]:
    """Return the process, its folder and time zone, and a file that its connections use."""
    try:
        folder = str(Path.cwd())
    except FileNotFoundError:
        folder = "gone"
    certificate = connection.get_connection_params()["sslrootcert"]
    return [os.getpid(), folder, time.tzname[0], certificate]


@task
def stop_own_process() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


@task
def print_much(mebibytes: int) -> None:
    line = "x" * (2**20 - 1)
    for _ in range(mebibytes):
        print(line)
    sys.stdout.flush()  # the last line end would wait in its buffer


@task
def close_streams() -> None:
    """Close standard output and error, so that nothing can be printed or logged afterwards."""
    sys.stdout.close()
    sys.stderr.close()


# -- tasks that end the process


@task
def die(how: str) -> None:
    if how == "exit":
        os._exit(3)
    if how == "segfault":
        ctypes.string_at(0)
    if how == "SIGKILL":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "abort":
        os.abort()


@task
async def adie(how: str) -> None:
    await asyncio.sleep(0)
    die.func(how)


@task
async def die_in_thread(how: str) -> None:
    await sync_to_async(die.func)(how)


# -- tasks that never end


@task(timeout=1, max_attempts=1)
def loop(how: str) -> None:
    """Run an endless loop: in Python, in Python that catches everything, in C with and without the GIL."""
    while how == "Python":
        pass
    while how == "stubborn":
        try:
            time.sleep(0.01)
        except BaseException:
            Entry.objects.create(key="caught")
    if how == "sleep":
        time.sleep(100_000)
    if how == "GIL":
        gil.hold_for_ever()


@task(timeout=1, max_attempts=1)
async def aloop(how: str) -> None:
    """Do the same on the event loop. "await" lets the other jobs run."""
    while how == "await":
        await asyncio.sleep(0)
    while how == "stubborn":
        try:
            await asyncio.sleep(0.01)
        except BaseException:
            await Entry.objects.acreate(key="caught")
    loop.func(how)
