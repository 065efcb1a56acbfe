"""What ran in the last minutes and hours, for a view that is read every few seconds.

It reads the minutes themselves, which are few: one row for each queue and task that ran in a minute.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from django.db import connections

__all__ = ["Throughput", "throughput"]

_SQL = Path(__file__).with_suffix(".sql").read_text(encoding="utf-8")


@dataclass(slots=True)
class Throughput:
    """What ran lately in one queue, or in several."""

    finished: int = 0
    """Jobs that ended in the last full minute: done, failed or cancelled."""
    per_second: float = 0.0
    """The same since the last full minute began, for each second."""
    failed: int = 0
    """Jobs that failed in the last hour."""
    failed_before: int = 0
    """Jobs that failed in the hour before."""

    def add(self, other: Throughput) -> None:
        """Add the figures of another queue."""
        self.finished += other.finished
        self.per_second += other.per_second
        self.failed += other.failed
        self.failed_before += other.failed_before


def throughput(alias: str) -> dict[str, Throughput]:
    """Return the figures of each queue in which jobs ran in the last two hours."""
    with connections[alias].cursor() as cursor:
        cursor.execute(_SQL)
        return {name: Throughput(*figures) for name, *figures in cursor.fetchall()}
