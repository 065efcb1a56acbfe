"""The tasks that the benchmarks run."""

from __future__ import annotations

import os
import time
from pathlib import Path

from django_pgqueue import task

from .models import Note


@task
def noop() -> None:
    """Do nothing, so that only the queue itself is measured."""


@task
def hold(path: str) -> None:
    """Record the time of the start, then run until the file exists."""
    file = os.open(f"{path}.runs", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, f"{time.monotonic()}\n".encode())
    os.close(file)
    while not Path(path).exists():
        time.sleep(0.01)


@task
def insert_note() -> None:
    """Insert one row."""
    Note(text="a note").save()
