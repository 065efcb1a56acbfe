"""A few points over a span for many queues or tasks at once, for the small charts in lists."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from django.db import connections

from ..models import stat
from ..time_limit import time_limit
from .spans import DAY, HOUR, PATIENCE, WEEK, Span

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Trend", "trends"]

_FOLDER = Path(__file__).parent
_SQL = "".join((_FOLDER / f"{name}.sql").read_text(encoding="utf-8") for name in ("parts", "trends"))
#: The step of each span, and the sums that it adds up. Single minutes of a task have no sums.
_STEPS = {
    HOUR.name: (timedelta(minutes=5), ""),
    DAY.name: (timedelta(hours=1), stat.Span.HOUR.value),
    WEEK.name: (timedelta(hours=6), stat.Span.HOUR.value),
}


@dataclass(frozen=True, slots=True)
class Trend:
    """The attempts of one queue or task, step by step, the oldest first. The last step is not over yet."""

    done: list[int]
    failed: list[int]
    """Attempts that raised, whether they are tried again or not."""


def trends(alias: str, span: Span, by: Literal["queue", "task"], names: Iterable[str]) -> dict[str, Trend]:
    """Return the trend of each name, over the last hour, day or week. Raises ``TimeLimitReached``."""
    step, source = _STEPS[span.name]
    count = span.length // step
    found = {name: Trend([0] * count, [0] * count) for name in names}
    parameters: dict[str, Any] = {
        "by": by, "of_task": by == "task", "queue": "", "task": "", "source": source, "names": list(found),
        "step": step, "back": span.length - step,
    }  # fmt: skip
    with time_limit(alias, PATIENCE), connections[alias].cursor() as cursor:
        cursor.execute(_SQL, parameters)
        for name, place, done, failed in cursor.fetchall():
            if 0 <= place < count:  # minutes in the future are there after the clock was set back
                found[name].done[int(place)] += done
                found[name].failed[int(place)] += failed
    return found
