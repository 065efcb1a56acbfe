"""How the rate of a run changed: the number of jobs that had run by then, noted while the benchmark waits."""

from __future__ import annotations

from bisect import bisect_left
from itertools import pairwise

__all__ = ["Progress"]

LOOKS = 1_000


class Progress:
    """About a thousand looks at the number of jobs that have run."""

    def __init__(self) -> None:
        self._times: list[float] = []
        self._counts: list[int] = []

    def saw(self, count: int, at: float, jobs: int) -> None:
        """Note that this number of all ``jobs`` had run at this time, unless it is close to the last one."""
        if count and (not self._counts or count >= min(jobs, self._counts[-1] + jobs / LOOKS)):
            self._times.append(at)
            self._counts.append(count)

    def tenths(self, began: float, jobs: int) -> list[float]:
        """Return the jobs per second of each tenth of a run that began at this time and is over."""
        borders = [began, *(self.reached(jobs * part / 10, began) for part in range(1, 11))]
        return [jobs / 10 / (end - start) for start, end in pairwise(borders)]

    def longest_pause(self) -> float:
        """Return the longest time, in seconds, in which hardly any job ran."""
        return max((end - start for start, end in pairwise(self._times)), default=0.0)

    def reached(self, count: float, began: float) -> float:
        """Return when this number of jobs had run, as if the rate between two looks did not change."""
        after = bisect_left(self._counts, count)
        before_at, before = (self._times[after - 1], self._counts[after - 1]) if after else (began, 0)
        part = (count - before) / (self._counts[after] - before)
        return before_at + part * (self._times[after] - before_at)
