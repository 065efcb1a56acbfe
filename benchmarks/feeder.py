"""Enqueue at a steady rate: ``python -m benchmarks.feeder PLAN``, which ``load`` starts.

PLAN is a ``Plan`` as JSON. The program prints a line when its connection is open, begins when it reads a
line, and prints what it did as one line of JSON.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass

__all__ = ["Plan"]

MOST_LATE = 1.0  # seconds


@dataclass(frozen=True)
class Plan:
    """What to enqueue."""

    rate: float
    """No-op jobs per second, in small batches."""
    singles: float
    """Jobs per second that are enqueued one by one and record when they started."""
    seconds: float
    batch: int = 50
    first: int = 0
    """The number of the first single job."""
    step: int = 1
    """The difference between the numbers of two single jobs, if others enqueue some as well."""


def main(plan: Plan) -> None:
    """Set up Django, wait for the start, and enqueue."""
    import django

    django.setup()
    from django.db import connection

    connection.ensure_connection()
    print("ready", flush=True)
    sys.stdin.readline()
    print(json.dumps(feed(plan)), flush=True)


def feed(plan: Plan) -> dict[str, object]:
    """Enqueue until the time is over, and return how many, how long it took, and when each single was in."""
    from django_pgqueue import enqueue, enqueue_many

    from . import tasks

    jobs, number = 0, plan.first
    committed: list[tuple[int, float]] = []
    next_batch = next_single = began = time.monotonic()
    while (now := time.monotonic()) - began < plan.seconds:
        if (due := min(next_batch, next_single)) > now:
            time.sleep(due - now)
        elif next_single <= now:
            enqueue(tasks.stamp, number)
            committed.append((number, time.monotonic()))
            # Not in step with anything that the worker does at regular intervals.
            pause = (0.5 + (number * 7919 % 100) / 100) / plan.singles
            next_single = max(next_single + pause, now - MOST_LATE)
            number += plan.step
            jobs += 1
        else:
            enqueue_many([tasks.noop.bind() for _ in range(plan.batch)])
            # What is late is made up for, so that a slow call now and then does not change the rate. But if a
            # busy machine held this process up for longer, the rest must not come at more than the rate.
            next_batch = max(next_batch + plan.batch / plan.rate, now - MOST_LATE)
            jobs += plan.batch
    return {"jobs": jobs, "seconds": time.monotonic() - began, "committed": committed}


if __name__ == "__main__":
    main(Plan(**json.loads(sys.argv[1])))
