"""Time one kind of call: ``python -m benchmarks.takers select|update|take|refused|look SECONDS``.

Prints the median time in microseconds.
"""

from __future__ import annotations

import statistics
import sys
import time
from typing import TYPE_CHECKING

from django_pgqueue import RateLimit, RateLimiter

if TYPE_CHECKING:
    from collections.abc import Callable

GENEROUS = 1_000_000  # in a second, all of which may be taken at once
WARM_UP = 50


def main(what: str, seconds: float) -> None:
    """Call it for this time, and print the median."""
    import django

    django.setup()
    call = made(what)
    times: list[float] = []
    until = time.monotonic() + seconds
    while time.monotonic() < until or len(times) <= WARM_UP:
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    print(statistics.median(times[WARM_UP:]) * 1e6, flush=True)


def made(what: str) -> Callable[[], object]:
    """Return the call, with everything there that it needs."""
    from datetime import timedelta

    from django.db import connection

    from django_pgqueue import set_limit

    set_limit(name="generous", rate_limit=RateLimit(GENEROUS, per=timedelta(seconds=1), burst=GENEROUS))
    set_limit(name="strict", rate_limit=RateLimit(1, per=timedelta(days=1)))
    generous, strict = RateLimiter("generous", "acme"), RateLimiter("strict", "acme")
    strict.take()
    cursor = connection.cursor()
    cursor.execute("INSERT INTO note (text) VALUES ('a note') RETURNING id")
    note = cursor.fetchone()
    ways: dict[str, Callable[[], object]] = {
        "select": lambda: cursor.execute("SELECT 1"),
        "update": lambda: cursor.execute("UPDATE note SET text = 'another' WHERE id = %s", note),
        "take": generous.take,
        "refused": strict.take,
        "look": generous.seconds_until,
    }
    return ways[what]


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
