"""The tasks that the benchmarks run."""

from __future__ import annotations

import random
import string
from datetime import timedelta
from typing import TYPE_CHECKING

from django_pgqueue import current_job, task

from . import marks
from .marks import mark, stamp as stamp_start
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
def unmarked(number: int = 0) -> None:
    """Do nothing, where the time is read from the rows of the jobs."""


@task
def insert() -> None:
    """Insert one row."""
    Note(text="a note").save()
    mark()


@task
def nothing() -> None:
    """Do nothing, without a mark."""


@task
def insert_only() -> None:
    """Insert one row, without a mark."""
    Note(text="a note").save()


@task(atomic=True)
def insert_on_shard() -> None:
    """Insert one row on the shard of the job, in the transaction that ends it."""
    Note(text="a note").save(using=current_job().database)


@task
def stamp(number: int) -> None:
    """Record when the job started."""
    stamp_start(number)
    mark()


@task
def wait() -> None:
    """Wait as long as the benchmark says."""
    marks.wait()


@task
async def a_wait() -> None:
    """Wait on the event loop as long as the benchmark says."""
    await marks.a_wait()


@task
def payload(text: str) -> None:
    """Take an argument, and do nothing with it."""
    mark()


@task
def order(number: int) -> None:
    """Take a number, and do nothing with it."""
    mark()


@task(search=("number",))
def searched_order(number: int) -> None:
    """The same, with the number in the index of arguments."""
    mark()


@task(max_attempts=2, backoff=0)
def flaky(number: int) -> None:
    """Fail the first time. Both attempts leave a mark, so that the time begins with the first of them.

    The process itself remembers the first attempts, because reading the job would take time as well. So there
    must be only one process.
    """
    mark()
    if number not in _tried:
        _tried.add(number)
        raise ConnectionError("the first attempt fails")


#: The kinds of jobs that every contestant runs, and those of our own scenarios.
KINDS: dict[str, AnyTask] = {
    "noop": noop,
    "insert": insert,
    "stamp": stamp,
    "wait": wait,
    "a_wait": a_wait,
    "payload": payload,
    "flaky": flaky,
    "order": order,
    "searched_order": searched_order,
}

#: The kinds that take the number of the job.
NUMBERED = ("stamp", "flaky", "order", "searched_order")

_tried: set[int] = set()


def calls(
    kind: str,
    jobs: int,
    *,
    queues: int = 1,
    priorities: int = 1,
    run_after: float = 0,
    priority: int = 0,
    size: int = 0,
) -> Iterator[BoundTask]:
    """Return calls for ``enqueue_many``, spread evenly over queues (q0, q1 ..) and priorities (0, 1 ..).

    ``run_after`` is in seconds from now, ``size`` in characters: the argument of ``payload``.
    """
    variants = [
        KINDS[kind].using(
            queue_name=f"q{number % queues}" if queues > 1 else None,
            priority=number % priorities if priorities > 1 else priority,
            run_after=timedelta(seconds=run_after) if run_after else None,
        )
        for number in range(max(queues, priorities))
    ]
    # Random, because the server compresses text that repeats itself.
    text = "".join(random.choices(string.ascii_letters + string.digits, k=size)) if kind == "payload" else ""
    for number in range(jobs):
        variant = variants[number % len(variants)]
        if kind == "payload":
            yield variant.bind(text)
        else:
            yield variant.bind(number) if kind in NUMBERED else variant.bind()
