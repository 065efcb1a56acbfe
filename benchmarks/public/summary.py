"""From samples to the figures of a phase.

Samples are made on multiples of the interval. Those of the same multiple belong together: rates of several
replicas add up, and of everything else the largest value counts. A tick without any rate counts as a rate of
0, because then no replica was alive to report one.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

from .phases import Phase
from .samples import Sample

LATENCIES = [f"{kind}_p{part}_ms" for kind in ("end_to_end", "subscriber") for part in (50, 95, 99)]
RATES = ("completion_rate", "enqueue_rate")


@dataclass(frozen=True)
class Span:
    """When a phase began and ended, in seconds since the epoch."""

    phase: Phase
    began: float
    ended: float

    def ticks(self, every: float) -> range:
        """Return the numbers of the ticks whose whole interval is in the phase."""
        return range(math.ceil(self.began / every) + 1, math.floor(self.ended / every) + 1)


def summarize(span: Span, samples: Iterable[Sample], every: float) -> dict[str, Any]:
    """Return the figures of a phase: medians over its ticks, if not named otherwise."""
    ticks = span.ticks(every)
    series = _series(samples, ticks, every)
    figures: dict[str, Any] = {"seconds": span.ended - span.began, "trouble": span.phase.trouble.name.lower()}
    for metric in RATES:
        values = [series[metric].get(tick, 0.0) for tick in ticks]
        figures[metric] = median(values) if values else None
        figures[f"mean_{metric}"] = fmean(values) if values else None
    for metric in LATENCIES:
        figures[metric] = _median(list(series[metric].values()))
    figures["queue_depth"] = _median(list(series["queue_depth"].values()))
    figures["last_backlog"] = _last(series["total_backlog"])
    figures["dead_tuples"] = max(series["dead_tuples"].values(), default=None)
    figures["database_mb"] = _last(series["database_mb"])
    return figures


def _series(samples: Iterable[Sample], ticks: Sequence[int], every: float) -> dict[str, dict[int, float]]:
    """Return the values of each metric by tick."""
    series: dict[str, dict[int, float]] = defaultdict(dict)
    for sample in samples:
        tick = round(sample.moment / every)
        if tick not in ticks:
            continue
        values = series[sample.metric]
        if sample.metric in RATES:
            values[tick] = values.get(tick, 0.0) + sample.value
        else:
            values[tick] = max(values.get(tick, sample.value), sample.value)
    return series


def _median(values: Sequence[float]) -> float | None:
    return median(values) if values else None


def _last(values: dict[int, float]) -> float | None:
    return values[max(values)] if values else None
