"""Time calls with hooks: ``python -m benchmarks.hook_calls enqueue|many|attempt none|same|change SECONDS``.

``same`` is a hook that does nothing, and ``change`` one of ``BEFORE_ENQUEUE`` that adds metadata. An attempt
is all that a worker does with a claimed job that does nothing, without the database. Prints the median time
in microseconds: of ``enqueue()``, of one of the calls of ``enqueue_many()``, or of an attempt.
"""

from __future__ import annotations

import statistics
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from django_pgqueue import BoundTask, CurrentJob

MANY = 500
WARM_UP = 50


def same(call: BoundTask) -> None:
    """Leave the call as it is."""


def change(call: BoundTask) -> BoundTask:
    """Add metadata."""
    return call.using(metadata={"tenant": "acme"})


@contextmanager
def around(job: CurrentJob) -> Iterator[None]:
    """Surround an attempt."""
    yield


def main(what: str, hook: str, seconds: float) -> None:
    """Call it for this time, and print the median."""
    import django
    from django.conf import settings

    if hook != "none":
        key, name = ("AROUND_ATTEMPT", "around") if what == "attempt" else ("BEFORE_ENQUEUE", hook)
        settings.PGQUEUE = {**settings.PGQUEUE, key: [f"benchmarks.hook_calls.{name}"]}
    django.setup()
    call, size = made(what)
    times: list[float] = []
    until = time.monotonic() + seconds
    while time.monotonic() < until or len(times) <= WARM_UP:
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    print(statistics.median(times[WARM_UP:]) * 1e6 / size, flush=True)


def made(what: str) -> tuple[Callable[[], object], int]:
    """Return the call, and how many it stands for."""
    from django.db import connection

    from benchmarks.tasks import noop
    from django_pgqueue import enqueue, enqueue_many

    if what == "attempt":
        return attempt(noop.module_path), 1
    connection.ensure_connection()
    if what == "many":
        return lambda: enqueue_many(noop.bind() for _ in range(MANY)), MANY
    return lambda: enqueue(noop), 1


def attempt(task_path: str) -> Callable[[], object]:
    """Return the run of a claimed job."""
    from django_pgqueue.testing.calls import _claimed
    from django_pgqueue.worker.executor.calls import Companions
    from django_pgqueue.worker.executor.runner import Runner
    from django_pgqueue.worker.started_jobs import StartedJobs

    started = StartedJobs.private(1)
    runner = Runner("default", 1, started)
    row = _claimed({"task_path": task_path}, {})
    companions = Companions([row])

    def run() -> None:
        runner.perform(row, lambda jobs: None, companions)
        started.end(row.id)

    return run


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]))
