"""Percentiles of the latencies of the last seconds, in bounded memory.

Values are rounded to three significant digits and counted, so that memory depends on the range of the values
(900 classes for each power of ten) and not on their number. A window consists of slices, and old slices are
dropped.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable

SLICES = 30  # of a window


class Latencies:
    """The latencies of the last ``window_seconds``. Several threads may use it."""

    def __init__(self, window_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._window = window_seconds
        self._clock = clock
        self._slices: deque[tuple[float, Counter[float]]] = deque()  # with the time at which each began
        self._lock = threading.Lock()

    def add(self, milliseconds: Iterable[float]) -> None:
        """Count values that were measured just now."""
        rounded = Counter(float(f"{max(0.0, value):.3g}") for value in milliseconds)
        with self._lock:
            moment = self._clock()
            if not self._slices or moment - self._slices[-1][0] > self._window / SLICES:
                self._slices.append((moment, Counter()))
                self._forget(moment)
            self._slices[-1][1].update(rounded)

    def percentiles(self, parts: Iterable[float] = (0.5, 0.95, 0.99)) -> list[float] | None:
        """Return percentiles of the window, or None if it is empty."""
        with self._lock:
            self._forget(self._clock())
            counts = sum((counts for _, counts in self._slices), Counter[float]())
        total = counts.total()
        if not total:
            return None
        values = sorted(counts)
        return [_at(part * total, values, counts) for part in parts]

    def _forget(self, moment: float) -> None:
        while self._slices and moment - self._slices[0][0] > self._window:
            self._slices.popleft()


def _at(rank: float, values: list[float], counts: Counter[float]) -> float:
    """Return the value below or at which ``rank`` of the counted values are."""
    seen = 0
    for value in values:
        seen += counts[value]
        if seen >= rank:
            return value
    return values[-1]
