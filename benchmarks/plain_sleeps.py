"""The floor of jobs that sleep: the same sleeps without a queue.

    python -m benchmarks.plain_sleeps threads 20 4    20 threads, for 4 seconds
    python -m benchmarks.plain_sleeps loop 200 4      200 coroutines on one event loop

The program prints how many sleeps ended in a second.
"""

from __future__ import annotations

import asyncio
import sys
import time
from threading import Thread

from .marks import mark

__all__ = ["SLEEP_SECONDS", "a_sleep", "sleep"]

SLEEP_SECONDS = 0.01


def sleep() -> None:
    """Wait for 10 ms, as for a network."""
    time.sleep(SLEEP_SECONDS)
    mark()


async def a_sleep() -> None:
    """Wait for 10 ms on the event loop."""
    await asyncio.sleep(SLEEP_SECONDS)
    mark()


def main(kind: str, slots: int, seconds: float) -> None:
    """Sleep in all slots, and print the rate."""
    began = time.monotonic()
    if kind == "threads":
        done = in_threads(slots, began + seconds)
    else:
        done = asyncio.run(on_a_loop(slots, began + seconds))
    print(done / (time.monotonic() - began), flush=True)


def in_threads(slots: int, end: float) -> int:
    """Sleep in threads until this time, and return how often."""
    counts = [0] * slots

    def work(slot: int) -> None:
        while time.monotonic() < end:
            sleep()
            counts[slot] += 1

    threads = [Thread(target=work, args=(slot,)) for slot in range(slots)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts)


async def on_a_loop(slots: int, end: float) -> int:
    """Sleep in coroutines until this time, and return how often. Each sleep is a task, as each job is."""
    done = 0

    async def work() -> None:
        nonlocal done
        while time.monotonic() < end:
            await asyncio.create_task(a_sleep())
            done += 1

    await asyncio.gather(*(work() for _ in range(slots)))
    return done


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
