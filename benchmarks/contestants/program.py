"""Call a method of a contestant: ``python -m benchmarks.contestants.program NAME VERB ..``.

The benchmark starts this program with the Python of the contestant's environment. It prints its result as one
line of JSON.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from . import load

#: Imports, and what the first statements of a session cost, are not part of the measured bulk enqueue.
FIRST = 100


def main(arguments: list[str]) -> None:
    """Call the method, and print what it returned or how long it took."""
    name, verb, *rest = arguments
    contestant = load(name)
    if verb == "work":
        contestant.work(*map(int, rest))
        return
    result: Any
    if verb == "put":
        kind, jobs, pause = rest
        result = _put(contestant, kind, int(jobs), float(pause))
    elif verb == "bulk":
        kind, jobs = rest
        contestant.fill(kind, FIRST)  # type: ignore[arg-type]
        start = time.monotonic()
        contestant.fill(kind, int(jobs))  # type: ignore[arg-type]
        result = time.monotonic() - start
    else:
        start = time.monotonic()
        if verb == "fill":
            kind, jobs, options = rest
            contestant.fill(kind, int(jobs), **json.loads(options))  # type: ignore[arg-type]
        else:
            getattr(contestant, verb)()
        result = time.monotonic() - start
    print(json.dumps(result))


def _put(contestant: Any, kind: str, jobs: int, pause: float) -> list[tuple[float, float]]:
    """Enqueue jobs one by one, and return when each call began and ended."""
    times = []
    with contestant.putting(kind) as put:
        for number in range(jobs):
            if pause:
                # Not in step with anything that the worker does at regular intervals.
                time.sleep(pause * (0.5 + (number * 7919 % 100) / 100))
            start = time.monotonic()
            put(number)
            times.append((start, time.monotonic()))
    return times


if __name__ == "__main__":
    main(sys.argv[1:])
