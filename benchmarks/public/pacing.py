"""How many jobs the producer adds, and when.

Three ways: tokens of the harness on standard input (``ENQUEUE 128``), a rate that the adapter keeps by
itself, and a number of waiting jobs that it restores. Each has a method ``batch()``, which waits until it is
time for the next batch and returns its size. After a short while it returns 0, so that the producer can stop.
"""

from __future__ import annotations

import os
import select
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

from .contract import Options

PATIENCE = 0.2  # seconds
IDLE = 0.01  # seconds between two looks at the depth


class Pacing(Protocol):
    """Decides how many jobs come next."""

    def batch(self) -> int:
        """Return how many jobs to add now. 0: none for the moment."""


def pacing(options: Options, depth: Callable[[], float], stdin: int = 0) -> Pacing:
    """Return the way that the options ask for."""
    if options.is_depth_target:
        return ByDepth(options, depth)
    if options.is_paced_by_harness:
        return ByTokens(options, stdin)
    return ByRate(options)


class ByTokens:
    """The harness paces. When its end of the pipe is closed, nothing is added anymore."""

    def __init__(self, options: Options, file: int) -> None:
        self._batch_max = options.batch_max
        self._file = file
        self._begun = b""  # a line that has not arrived completely
        self._tokens: deque[int] = deque()

    def batch(self) -> int:
        """Return the number of the next token."""
        if not self._tokens and select.select([self._file], [], [], PATIENCE)[0]:
            block = os.read(self._file, 4096)
            if not block:
                time.sleep(PATIENCE)
            *lines, self._begun = (self._begun + block).split(b"\n")
            self._tokens.extend(size for line in lines if (size := _size(line)) > 0)
        return min(self._tokens.popleft(), self._batch_max) if self._tokens else 0


def _size(line: bytes) -> int:
    word, _, number = line.strip().partition(b" ")
    return int(number) if word == b"ENQUEUE" and number.isdigit() else 0


class ByRate:
    """Earns credit for the time that has really passed, so that a slow insert does not lower the rate."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._credit = 0.0
        self._last = time.monotonic()

    def batch(self) -> int:
        """Wait for a tick, and return what has been earned since the last one."""
        time.sleep(max(0.0, self._last + self._options.batch_seconds - time.monotonic()))
        moment = time.monotonic()
        self._credit += self._options.current_rate() * (moment - self._last)
        self._last = moment
        size = min(int(self._credit), self._options.batch_max)
        self._credit -= size
        return size


class ByDepth:
    """Keeps ``TARGET_DEPTH`` jobs waiting."""

    def __init__(self, options: Options, depth: Callable[[], float]) -> None:
        self._options = options
        self._depth = depth

    def batch(self) -> int:
        """Return how many jobs are missing."""
        missing = self._options.target_depth - int(self._depth())
        if missing <= 0:
            time.sleep(IDLE)
        return max(0, min(missing, self._options.batch_max))
