"""The tasks that the benchmarks run."""

from __future__ import annotations

import os
import time
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from django_pgqueue import task

from .marks import mark
from .marks import stamp as stamp_start
from .models import Note

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django_pgqueue import BoundTask, Task

    AnyTask = Task[..., None]


@task
def noop() -> None:
    """Do nothing, so that only the queue itself is measured."""
    mark()


@task
def insert() -> None:
    """Insert one row."""
    Note(text="a note").save()
    mark()


@task
def stamp(number: int) -> None:
    """Record when the job started."""
    stamp_start(number)
    mark()


@task
def hold(path: str) -> None:
    """Record the time of the start, then run until the file exists."""
    file = os.open(f"{path}.runs", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, f"{time.monotonic()}\n".encode())
    os.close(file)
    while not Path(path).exists():
        time.sleep(0.01)


#: The kinds of jobs that every contestant runs, and those of our own scenarios.
KINDS: dict[str, AnyTask] = {"noop": noop, "insert": insert, "stamp": stamp}


def calls(
    kind: str, jobs: int, *, queues: int = 1, priorities: int = 1, run_after: float = 0, priority: int = 0
) -> Iterator[BoundTask]:
    """Return calls for ``enqueue_many``, spread evenly over queues (q0, q1 ..) and priorities (0, 1 ..).

    ``run_after`` is in seconds from now.
    """
    variants = [
        KINDS[kind].using(
            queue_name=f"q{number % queues}" if queues > 1 else None,
            priority=number % priorities if priorities > 1 else priority,
            run_after=timedelta(seconds=run_after) if run_after else None,
        )
        for number in range(max(queues, priorities))
    ]
    for number in range(jobs):
        variant = variants[number % len(variants)]
        yield variant.bind(number) if kind == "stamp" else variant.bind()
