"""Call a method of a contestant: ``python -m benchmarks.contestants.program NAME VERB ..``.

The benchmark starts this program with the Python of the contestant's environment. It prints its result as one
line of JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from typing import Any, NoReturn

from . import load

#: Imports, and what the first statements of a session cost, are not part of the measured bulk enqueue.
FIRST = 100
#: The same for each process that enqueues one by one.
FIRST_CALLS = 3


def main(arguments: list[str]) -> None:
    """Call the method, and print what it returned or how long it took."""
    name, verb, *rest = arguments
    contestant = load(name)
    if verb == "work":
        contestant.work(*map(int, rest))
        return
    if verb == "produce":
        _produce(contestant, int(rest[0]))
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


def _produce(contestant: Any, producers: int) -> None:
    """Enqueue jobs one by one in so many processes, from the first line that is read to the second.

    Prints a line when all are connected, and then for each how many jobs it has enqueued in how many seconds.
    """
    contestant.preload()
    ready, begin, end = os.pipe(), os.pipe(), os.pipe()
    children = []
    for _ in range(producers):
        if not (child := os.fork()):
            _produce_alone(contestant, ready[1], begin, end)
        children.append(child)
    answers = b""
    while len(answers) < producers:
        answers += os.read(ready[0], producers)
    if b"x" in answers:
        sys.exit("A process that enqueues has failed.")
    print("connected", flush=True)
    for _, writer in (begin, end):
        sys.stdin.readline()
        os.close(writer)  # all children read the end of the pipe at once
    for child in children:
        os.waitpid(child, 0)
    print("over", flush=True)


def _produce_alone(contestant: Any, ready: int, begin: tuple[int, int], end: tuple[int, int]) -> NoReturn:
    os.close(begin[1])
    os.close(end[1])
    os.set_blocking(end[0], False)
    try:
        with contestant.putting("noop") as put:
            for _ in range(FIRST_CALLS):
                put(0)
            os.write(ready, b".")
            os.read(begin[0], 1)
            start, count = time.monotonic(), 0
            while _is_open(end[0]):
                put(0)
                count += 1
            line = f"{count} {time.monotonic() - start}\n"
            os.write(1, line.encode())  # at once, between the lines of the other processes
    except BaseException:
        traceback.print_exc()
        os.write(ready, b"x")
    finally:
        os._exit(0)


def _is_open(pipe: int) -> bool:
    try:
        return bool(os.read(pipe, 1))
    except BlockingIOError:
        return True


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
