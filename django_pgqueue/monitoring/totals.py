"""What ran since the first job, by queue and task: counts that only grow, as Prometheus expects them.

They come from the total and from the minutes that are not in it yet. One statement reads both, so maintenance
that rolls up at this moment does not change the result.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from django.db import connections

from ..models.stat import HISTOGRAM_BOUNDS

_SQL = Path(__file__).with_name("totals.sql").read_text(encoding="utf-8")
_OUTCOMES = ("done", "failed", "retried", "cancelled")


def _empty() -> list[int]:
    return [0] * (len(HISTOGRAM_BOUNDS) + 1)


@dataclass(slots=True)
class Total:
    """All attempts of one task in one queue."""

    queue_name: str
    task_path: str
    outcomes: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_OUTCOMES, 0))
    """How many attempts ended as done, failed, retried or cancelled."""
    wait_seconds: float = 0.0
    run_seconds: float = 0.0
    wait_histogram: list[int] = field(default_factory=_empty)
    run_histogram: list[int] = field(default_factory=_empty)


def totals(alias: str) -> list[Total]:
    """Return the totals, in the order of queues and tasks."""
    found: dict[tuple[str, str], Total] = {}
    with connections[alias].cursor() as cursor:
        cursor.execute(_SQL)
        for queue_name, task_path, counts, seconds, waited, ran in cursor.fetchall():
            total = found.setdefault((queue_name, task_path), Total(queue_name, task_path))
            for outcome, count in zip(_OUTCOMES, counts, strict=True):
                total.outcomes[outcome] += count
            total.wait_seconds += seconds[0]
            total.run_seconds += seconds[1]
            _add(total.wait_histogram, waited)
            _add(total.run_histogram, ran)
    return [found[key] for key in sorted(found)]


def _add(histogram: list[int], more: list[int]) -> None:
    for place, count in enumerate(more):
        histogram[place] += count
