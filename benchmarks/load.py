"""A steady load: two processes that enqueue for a while, and how soon a worker starts their jobs."""

from __future__ import annotations

import json
import statistics
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from .contender import StuckError
from .feeder import Plan
from .marks import STAMPS

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Sequence
    from types import TracebackType

    from .contender import Contender

__all__ = ["Fed", "Load", "percentiles"]

FEEDERS = 2
MOST_SINGLES = 200  # a second, of all feeders


@dataclass(frozen=True)
class Fed:
    """What was enqueued."""

    jobs: int
    seconds: float
    committed: dict[int, float]
    """When the enqueue of each single job was over (CLOCK_MONOTONIC)."""


class Load:
    """Enqueues ``rate`` no-op jobs per second, and some single jobs besides. Use it as a context manager.

    The processes start when the context is entered, and enqueue from ``begin`` on.
    """

    def __init__(self, contender: Contender, rate: float, seconds: float) -> None:
        # There is room for a limited number of marks, and the time between two single jobs varies by a half.
        singles = min(MOST_SINGLES, 0.9 * STAMPS / seconds)
        self._contender = contender
        self._plans = [
            Plan(rate / FEEDERS, singles / FEEDERS, seconds, first=number, step=FEEDERS)
            for number in range(FEEDERS)
        ]
        self._stack = ExitStack()
        self._feeders: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Load:
        with ExitStack() as stack:
            self._feeders = [
                stack.enter_context(self._contender.program("benchmarks.feeder", json.dumps(asdict(plan))))
                for plan in self._plans
            ]
            for feeder in self._feeders:
                self._line(feeder)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def begin(self) -> None:
        """Start to enqueue."""
        for feeder in self._feeders:
            assert feeder.stdin is not None
            feeder.stdin.write("\n")
            feeder.stdin.flush()

    def end(self) -> Fed:
        """Wait until the time is over."""
        done = [json.loads(self._line(feeder)) for feeder in self._feeders]
        return Fed(
            jobs=sum(each["jobs"] for each in done),
            seconds=max(each["seconds"] for each in done),
            committed=dict(pair for each in done for pair in each["committed"]),
        )

    def waits(self, fed: Fed) -> list[tuple[float, float]]:
        """Return for each single job when it was committed, and the milliseconds until it started, in order.

        A job may start before its enqueuer has heard that it is committed: this counts as no time.
        """
        starts = self._contender.marks.stamps(max(fed.committed) + 1)
        return sorted((at, max(0.0, starts[number] - at) * 1e3) for number, at in fed.committed.items())

    def _line(self, feeder: subprocess.Popen[str]) -> str:
        assert feeder.stdout is not None
        line = feeder.stdout.readline()
        if not line:
            raise StuckError(f"{self._contender.name}: a process that enqueues has ended")
        return line


def percentiles(waits: Sequence[float]) -> dict[str, float]:
    """Return the figures of pick-up times in milliseconds."""
    if len(waits) < 2:
        return {}
    parts = statistics.quantiles(waits, n=100, method="inclusive")
    return {f"p{part} ms": parts[part - 1] for part in (50, 95, 99)}
